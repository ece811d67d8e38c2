"""Whether an artifact is what the present parameters, sources and inputs would make."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ocm_core.io.digests import sha256_of
from ocm_core.params.restrict import values
from ocm_core.pipeline.manifests import manifest_of, read_manifest, text_digest
from ocm_core.pipeline.sources import digest, sources
from ocm_core.pipeline.table import BY_NAME, Task, inputs, modules, reads, tasks
from ocm_core.schema.experiment import Experiment


def source_files(experiment: Experiment, task: Task) -> list[Path]:
    """The code of a task, and what else it reads of the repository."""
    return sources(modules(experiment, task)) + [Path(file) for file in BY_NAME[task.stage].files]


def fingerprint(experiment: Experiment, task: Task) -> dict[str, Any]:
    """Everything that decides the bytes of an artifact; its inputs must exist."""
    upstream = inputs(experiment, task)
    return {
        "parameters": text_digest(values(experiment, reads(experiment, task))),
        "sources": digest(source_files(experiment, task)),
        "inputs": {str(t): sha256_of(manifest_of(experiment.name, t)) for t in upstream},
    }


def state(experiment: Experiment, task: Task) -> str:
    """`current`, `missing`, or `stale: ...` with what has changed since."""
    nodes = [task, *inputs(experiment, task)]
    missing = [str(node) for node in nodes if not manifest_of(experiment.name, node).exists()]
    if str(task) in missing:
        return "missing"
    if missing:
        return f"stale: {', '.join(missing)} is missing"
    recorded = read_manifest(experiment.name, task)
    now = fingerprint(experiment, task)
    changed = [name for name, value in now.items() if recorded.get(name) != value]
    return f"stale: made with other {', '.join(changed)}" if changed else "current"


def states(experiment: Experiment) -> dict[Task, str]:
    return {task: state(experiment, task) for task in tasks(experiment)}
