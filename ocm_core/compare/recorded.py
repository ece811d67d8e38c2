"""What a revision records of an experiment: the report's numbers, and its resolved parameters."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import isnan, nan, sqrt
from typing import Any

from ocm_core.compare.revisions import REMEDY, Revision
from ocm_core.errors import OcmError
from ocm_core.io.reading import reading
from ocm_core.params.document import parse_yaml

REPORTS, METRICS = "reports", ".metrics.json"
RESOLVED, PARAMS = "params/resolved", ".yaml"
# The ends of the names of trees that hold a metric's spread:
DEVIATION = "_std"  # its standard deviation over seeds
ERROR = "_se"  # its standard error, over the images of a test set
_DEEPEST = 20  # names inside names

Key = tuple[str, ...]


@dataclass(frozen=True)
class RecordedExperiment:
    """Empty where the revision does not have the file."""

    numbers: Mapping[Key, float]  # by metric, sampler, method, K<steps>, ...
    parameters: Mapping[Key, Any]

    def error(self, key: Key) -> float:
        """The standard error of a mean; NaN where no spread was recorded."""
        deviation, error = (
            self.numbers.get((f"{key[0]}{end}", *key[1:]), nan) for end in (DEVIATION, ERROR)
        )
        seeds = self.parameters.get(("sample", "seeds"))
        count = len(seeds) if isinstance(seeds, list) else 0
        return deviation / sqrt(count) if isnan(error) and count else error


def names(*revisions: Revision) -> list[str]:
    """The experiments that have numbers or parameters in any of them."""
    files = {
        path.removeprefix(f"{folder}/").removesuffix(suffix)
        for revision in revisions
        for folder, suffix in ((REPORTS, METRICS), (RESOLVED, PARAMS))
        for path in revision.files(folder)
        if path.endswith(suffix)
    }
    return sorted(files)


def recorded(revision: Revision, name: str) -> RecordedExperiment:
    resolved = f"{name}{PARAMS}"
    parameters = read_tree(revision, RESOLVED, resolved)
    return RecordedExperiment(
        _numbers(revision, name), dict(_leaves(parameters, f"{RESOLVED}/{resolved}"))
    )


def spread_names(keys: Iterable[Key]) -> set[str]:
    """The trees that hold the spread of another one."""
    metrics = {key[0] for key in keys}
    return {f"{name}{end}" for name in metrics for end in (DEVIATION, ERROR)} & metrics


def read_tree(revision: Revision, folder: str, file: str) -> dict[str, Any]:
    """Of a JSON or YAML file; empty where the revision does not have it."""
    path = f"{folder}/{file}"
    if path not in revision.files(folder):
        return {}
    where = f"{path} of {revision.name}"
    text = revision.read(path)
    if not path.endswith(".json"):
        return parse_yaml(text, where)
    with reading(where, "a JSON object", REMEDY):
        tree = json.loads(text)
        if not isinstance(tree, dict):
            raise ValueError(f"a {type(tree).__name__}")
    return tree


def _numbers(revision: Revision, name: str) -> dict[Key, float]:
    where = f"{REPORTS}/{name}{METRICS} of {revision.name}"
    found = dict(_leaves(read_tree(revision, REPORTS, f"{name}{METRICS}"), where))
    for key, value in found.items():
        with reading(f"{where}: {'.'.join(key)}", "a number", REMEDY):
            if isinstance(value, str | list | bool):
                raise TypeError(repr(value))
            float(value)
    return found


def _leaves(tree: Mapping[str, Any], where: str, above: Key = ()) -> Iterator[tuple[Key, Any]]:
    """As DVC has them: lists are values; null is as good as absent."""
    if len(above) > _DEEPEST:
        raise OcmError(f"{where}: names inside names, {len(above)} deep; {REMEDY}")
    for name, value in tree.items():
        key = (*above, str(name))
        if isinstance(value, Mapping):
            yield from _leaves(value, where, key)
        elif value is not None:
            yield key, value
