"""An invented pipeline, so that tests of the doctor do not depend on the real stages."""

from __future__ import annotations

from pathlib import Path

import pytest

from ocm_core.doctor import cost
from ocm_core.pipeline.stage import Stage, Task, Work
from ocm_core.schema.block import Params


@pytest.fixture(autouse=True)
def kept_in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep counts and measurements in a folder of the test, on a machine without a GPU."""
    monkeypatch.setattr(cost, "FILE", tmp_path / "pace.json")
    monkeypatch.setattr(cost, "this_device", lambda: "cpu")
    return tmp_path / "pace.json"


@pytest.fixture
def fake_stages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the stages of the package."""
    once = {"parts": lambda experiment: ["all"]}
    after = {name: (lambda e, p, name=name: [Task(name)]) for name in ("fetch_data", "encode")}
    declared: list[Stage[Params]] = [
        *(Stage(f"x.{name}", "fetch", **once) for name in ("fetch_score", "fetch_features")),
        Stage("x.fetch_data", "fetch", **once),
        Stage("x.encode", "encode", **once, takes=after["fetch_data"]),
        Stage(
            "x.train",
            "train",
            **once,
            takes=after["encode"],
            gpu=True,
            work=lambda e, p: Work(3e6),
        ),
        Stage("x.blur", "evaluate", **once, work=lambda e, p: Work(2e6, "features"), gpu=True),
    ]
    stages = {stage.name: stage for stage in declared}
    for module in ("pipeline.graph", "doctor.cost"):
        monkeypatch.setattr(f"ocm_core.{module}.stages", lambda: stages)


@pytest.fixture
def timings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Pretend that every network does 1 GFLOP/s, and list the devices that were timed."""
    timed: list[str] = []
    monkeypatch.setattr(cost, "_timed", lambda experiment, device: timed.append(device) or 1e9)
    return timed
