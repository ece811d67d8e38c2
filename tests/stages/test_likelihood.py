"""Processes that share the batches of a likelihood leave what one leaves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
import xarray as xr

from ocm_core.artifacts.results import load as load_results
from ocm_core.diffusion import schedule
from ocm_core.diffusion.denoiser import Denoiser
from ocm_core.diffusion.mixture import mixture
from ocm_core.distributed import Rank
from ocm_core.errors import OcmError
from ocm_core.networks.mixture import MixtureScore
from ocm_core.params.document import validate
from ocm_core.params.resolved import load
from ocm_core.pipeline.job import Job
from ocm_core.stages import evaluate_likelihood as stage

IMAGES = 23
POINTS = torch.linspace(-1, 1, 2 * IMAGES).view(IMAGES, 2)


@dataclass(frozen=True)
class InTurn(Rank):
    """One of several processes that run one after another, the first one last."""

    decided: Any = None

    def agreed(self, decide: Callable[[], Any]) -> Any:
        return self.decided

    def wait(self) -> None:
        pass


@pytest.fixture(autouse=True)
def _inputs(monkeypatch: pytest.MonkeyPatch) -> None:
    experiment = an_experiment()
    levels = schedule.build(experiment.schedule.kind, experiment.schedule.steps)
    denoiser = Denoiser(MixtureScore(mixture(experiment.data), levels).eval(), levels)
    monkeypatch.setattr(stage, "open_split", lambda job, split: POINTS)
    monkeypatch.setattr(
        stage,
        "read_rows",
        lambda job, split, rows, labelled: (POINTS[rows.start : rows.stop], None),
    )
    monkeypatch.setattr(stage, "load_denoiser", lambda job, score, labels: denoiser)
    monkeypatch.setattr(stage, "optimal_chains", lambda job, score: {})


def an_experiment():
    tree = load("toy_mog9").model_dump(mode="json")
    tree["network"]["scores"] = ["true"]
    chosen = {"methods": ["beta", "exact_diag"], "chains": {"ddpm": {"kind": "even"}}}
    tree["evaluate"]["likelihood"] |= {**chosen, "steps": [2, 5], "batch_size": 5}
    experiment = validate(tree, Path("some.yaml"))
    methods = {label: experiment.methods[label] for label in chosen["methods"]}
    return experiment.model_copy(update={"methods": methods})


def a_job(folder: Path) -> Job:
    for name in ("artifact", "state"):
        (folder / name).mkdir(parents=True)
    state = folder / "state"
    return Job(an_experiment(), stage.__name__, "all", {}, folder / "artifact", state, {}, "cpu")


def run(job: Job, rank: Rank, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage, "current_rank", lambda: rank)
    stage.run(job)


@pytest.mark.parametrize("processes", [2, 3, 7])
def test_several_compute_what_one_computes(
    processes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone, shared = a_job(tmp_path / "alone"), a_job(tmp_path / "shared")
    run(alone, Rank(), monkeypatch)
    batches = [range(first, min(first + 5, IMAGES)) for first in range(0, IMAGES, 5)]
    for index in reversed(range(processes)):
        run(shared, InTurn(index, processes, batches), monkeypatch)
    one, several = load_results(alone.folder), load_results(shared.folder)
    xr.testing.assert_identical(one, several)
    assert not one["nll"].isnull().any()
    assert len([*shared.state.iterdir()]) == len(batches)


def test_what_is_lost_meanwhile_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(OcmError, match=r"bits-true-5.*lost while others were computed"):
        run(a_job(tmp_path / "one"), InTurn(0, 2, [range(5), range(5, 10)]), monkeypatch)
