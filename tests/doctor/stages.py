"""Stages of an invented pipeline, so that tests of the doctor do not depend on the real ones."""

from __future__ import annotations

import pytest

from ocm_core.pipeline.graph import Graph
from ocm_core.pipeline.stage import Stage, Task, Work
from ocm_core.schema.block import Params
from ocm_core.schema.experiment import Experiment

DATA, TRAIN, BLUR = Task("fetch_data"), Task("train"), Task("blur")
USERS = ("pipeline.graph", "doctor.work", "doctor.times")


def _stages() -> dict[str, Stage[Params]]:
    def once(experiment: Experiment) -> list[str]:
        return ["all"]

    declared: list[Stage[Params]] = [
        Stage("x.fetch_score", "fetch", parts=once),
        Stage("x.fetch_features", "fetch", parts=once),
        Stage("x.fetch_data", "fetch", parts=once),
        Stage("x.encode", "encode", parts=once, takes=lambda e, p: [DATA]),
        Stage(
            "x.train",
            "train",
            parts=once,
            takes=lambda e, p: [Task("encode")],
            gpu=True,
            memory=1_000,
            work=lambda e, p: Work(3e6),
        ),
        Stage("x.blur", "evaluate", parts=once, work=lambda e, p: Work(2e6, "features"), gpu=True),
    ]
    return {stage.name: stage for stage in declared}


@pytest.fixture
def fake_stages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the stages of the package."""
    stages = _stages()
    for module in USERS:
        monkeypatch.setattr(f"ocm_core.{module}.stages", lambda: stages)


def graph_on(experiment: Experiment) -> Graph:
    """Return the graph of an experiment with the invented stages."""
    return Graph(experiment)
