"""Which parameters and sources made an experiment's numbers: `reports/<name>.provenance.json`.

The report writes it beside the metrics, and it is committed with them. It counts what decides the
numbers and no more: the evaluations in the metrics and all that they rest on. A page's title or
layout makes no number old. A digest per parameter key, so that any commit can be asked whether its
numbers are those of its own parameters.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from ocm_core.errors import OcmError
from ocm_core.params.restrict import values
from ocm_core.pipeline.manifests import text_digest
from ocm_core.pipeline.sources import digest, sources
from ocm_core.pipeline.staleness import source_files
from ocm_core.pipeline.table import Task, ancestry, reads, tasks
from ocm_core.schema.experiment import Experiment

SUFFIX = ".provenance.json"
_EVALUATIONS = tuple(
    f"evaluate_{of}" for of in ("images", "points", "covariance", "likelihood")
)  # those whose results are in the metrics: not pictures, not times
_SUMMARY = "ocm_core.report.metrics"  # from results to metrics
_DIGITS = 16


class NumberProvenance(BaseModel):
    """What made the numbers, as digests."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    metrics: str  # the file itself
    parameters: dict[str, str]  # by dotted key
    sources: str

    @classmethod
    def of(cls, experiment: Experiment, metrics: str) -> NumberProvenance:
        """Of metrics that the present parameters and sources have made."""
        read = {key for task in _deciding(experiment) for key in reads(experiment, task)}
        whole = {key for key in read if not any(key.startswith(f"{other}.") for other in read)}
        parameters = {key: _short(value) for key, value in values(experiment, whole).items()}
        return cls(metrics=_short(metrics), parameters=parameters, sources=_sources(experiment))

    @classmethod
    def parse(cls, text: str, file: str) -> NumberProvenance:
        try:
            return cls.model_validate_json(text)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(map(str, first["loc"]))
            raise OcmError(
                f"{file}: {f'{where}: ' if where else ''}{first['msg']}; the report writes it: "
                "restore it, or run the experiment again"
            ) from None

    @property
    def text(self) -> str:
        return self.model_dump_json(indent=1) + "\n"

    def differences(self, parameters: Mapping[str, Any], metrics: str) -> Iterator[str]:
        """What is not as it was when the numbers were made."""
        if _short(metrics) != self.metrics:
            yield "changed since they were made"
        made = self.parameters.items()
        keys = [key for key, digits in made if _short(_at(parameters, key)) != digits]
        if keys:
            yield f"made with other {', '.join(keys)}"

    def has_other_sources(self, experiment: Experiment) -> bool:
        return _sources(experiment) != self.sources


def _deciding(experiment: Experiment) -> list[Task]:
    """The evaluations in the metrics, and all that they rest on."""
    evaluations = [task for task in tasks(experiment) if task.stage in _EVALUATIONS]
    return ancestry(experiment, evaluations)


def _sources(experiment: Experiment) -> str:
    files = {file for task in _deciding(experiment) for file in source_files(experiment, task)}
    return digest(sorted(files.union(sources([_SUMMARY]))))[:_DIGITS]


def _short(value: object) -> str:
    return text_digest(value)[:_DIGITS]


def _at(tree: Any, key: str) -> Any:
    """The value behind a dotted key of a tree that may lack it: null is as good as absent."""
    for name in key.split("."):
        tree = tree.get(name) if isinstance(tree, Mapping) else None
    return tree
