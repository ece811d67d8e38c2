"""What a revision records of an experiment: the report's numbers, and its resolved parameters."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import isnan, nan, sqrt
from typing import Any

import yaml

from ocm_core.compare.revisions import Revision
from ocm_core.errors import OcmError

REPORTS, METRICS = "reports", ".metrics.json"
RESOLVED, PARAMS = "params/resolved", ".yaml"
# The ends of the names of trees that hold a metric's spread:
DEVIATION = "_std"  # its standard deviation over seeds
ERROR = "_se"  # its standard error, over the images of a test set

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
        seeds = self.parameters.get(("sample", "seeds"), [])
        return deviation / sqrt(len(seeds)) if isnan(error) and seeds else error


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
    return RecordedExperiment(
        dict(_leaves(_tree(revision, REPORTS, f"{name}{METRICS}"))),
        dict(_leaves(_tree(revision, RESOLVED, f"{name}{PARAMS}"))),
    )


def spread_names(keys: Iterable[Key]) -> set[str]:
    """The trees that hold the spread of another one."""
    metrics = {key[0] for key in keys}
    return {f"{name}{end}" for name in metrics for end in (DEVIATION, ERROR)} & metrics


def _tree(revision: Revision, folder: str, file: str) -> dict[str, Any]:
    path = f"{folder}/{file}"
    if path not in revision.files(folder):
        return {}
    text = revision.read(path)
    try:
        tree = json.loads(text) if path.endswith(".json") else yaml.safe_load(text)
    except (ValueError, yaml.YAMLError) as error:
        raise OcmError(
            f"{path} of {revision.name}: cannot be read ({str(error).splitlines()[0]}); "
            "restore it, or compare another revision"
        ) from None
    if not isinstance(tree, dict):
        raise OcmError(f"{path} of {revision.name}: expected names and values, found {tree!r}")
    return tree


def _leaves(tree: Mapping[str, Any], above: Key = ()) -> Iterator[tuple[Key, Any]]:
    """As DVC has them: lists are values; null is as good as absent."""
    for name, value in tree.items():
        key = (*above, str(name))
        if isinstance(value, Mapping):
            yield from _leaves(value, key)
        elif value is not None:
            yield key, value
