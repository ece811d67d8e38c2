"""Whether an artifact is what the present parameters, sources and inputs would make."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from ocm_core.io.digests import sha256_of
from ocm_core.params.restrict import values
from ocm_core.pipeline.manifests import manifest_of, read_manifest, text_digest
from ocm_core.pipeline.outside import listing
from ocm_core.pipeline.sources import digest, sources
from ocm_core.pipeline.table import (
    BY_NAME,
    Task,
    ancestry,
    inputs,
    modules,
    outside,
    reads,
    tasks,
)
from ocm_core.schema.experiment import Experiment
from ocm_core.text import listed

_NAMED = 2  # inputs that a reason names


def source_files(experiment: Experiment, task: Task) -> list[Path]:
    """The code of a task, and what else it reads of the repository."""
    return sources(modules(experiment, task)) + [Path(file) for file in BY_NAME[task.stage].files]


def fingerprint(experiment: Experiment, task: Task) -> dict[str, Any]:
    """Everything that decides the bytes of an artifact; its inputs must exist."""
    upstream, images = inputs(experiment, task), listing(outside(experiment, task), times=False)
    return {
        **({} if images is None else {"images": images}),
        "parameters": text_digest(values(experiment, reads(experiment, task))),
        "sources": digest(source_files(experiment, task)),
        "inputs": {str(t): sha256_of(manifest_of(experiment.name, t)) for t in upstream},
    }


def states(experiment: Experiment, wanted: Collection[Task] | None = None) -> dict[Task, str]:
    """`current`, `missing`, or `stale: ...` with why; of the wanted tasks and all they rest on.

    What follows from something stale is stale, as Snakemake has it: once that is made again, its
    manifest may be another. None is for every task of the experiment.
    """
    found: dict[Task, str] = {}
    for task in ancestry(experiment, tasks(experiment) if wanted is None else wanted):
        found[task] = _state(experiment, task, found)
    return found


def _state(experiment: Experiment, task: Task, found: Mapping[Task, str]) -> str:
    """Of one task, after those of its inputs."""
    if not manifest_of(experiment.name, task).exists():
        return "missing"
    upstream = {str(node): found[node].partition(":")[0] for node in inputs(experiment, task)}
    reasons = list(_behind(upstream))
    if "missing" not in upstream.values():  # a fingerprint opens the inputs' manifests
        reasons = [*_changed(experiment, task), *reasons]
    return f"stale: {'; '.join(reasons)}" if reasons else "current"


def _changed(experiment: Experiment, task: Task) -> Iterator[str]:
    """What is not as it was when the artifact was made."""
    recorded, now = read_manifest(experiment.name, task), fingerprint(experiment, task)
    names = [name for name, value in now.items() if recorded.get(name) != value]
    if names:
        yield f"made with other {', '.join(names)}"


def _behind(upstream: Mapping[str, str]) -> Iterator[str]:
    """`heads/learned is stale`; of many inputs, the first."""
    for how in ("missing", "stale"):
        names = [name for name, state in upstream.items() if state == how]
        shown = names if len(names) <= _NAMED else [*names[:_NAMED], f"{len(names) - _NAMED} more"]
        if names:
            yield f"{listed(shown)} {'is' if len(names) == 1 else 'are'} {how}"
