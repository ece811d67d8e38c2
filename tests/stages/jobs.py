"""Jobs for stages that are run in this process, without a graph."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ocm_core.params.compose import compose
from ocm_core.pipeline.job import Job
from ocm_core.pipeline.stage import Task
from ocm_core.schema.experiment import Experiment


def experiment_with(name: str, overrides: Sequence[str], methods: Sequence[str]) -> Experiment:
    """Return an experiment that defines these methods and no others."""
    whole = compose(name, overrides)
    return whole.model_copy(update={"methods": {label: whole.methods[label] for label in methods}})


def job_of(
    experiment: Any, task: Task, place: Path, folders: Mapping[Task, Path] | None = None
) -> Job:
    """Return a job that writes below `place`, on the CPU."""
    for name in ("artifact", "state"):
        (place / name).mkdir(parents=True, exist_ok=True)
    return Job(
        experiment,
        folders or {},
        "cpu",
        task=task,
        folder=place / "artifact",
        state=place / "state",
        outputs=place / "outputs",
    )
