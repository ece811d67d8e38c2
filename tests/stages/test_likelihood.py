"""Processes that share the batches of a likelihood leave what one leaves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from ocm_core.diffusion import schedule
from ocm_core.diffusion.denoiser import Denoiser
from ocm_core.diffusion.mixture import mixture
from ocm_core.distributed import Rank
from ocm_core.errors import OcmError
from ocm_core.networks.mixture import MixtureScore
from ocm_core.pipeline.job import Job
from ocm_core.pipeline.stage import Task
from ocm_core.schema.experiment import Experiment
from ocm_core.stages import _results
from ocm_core.stages import likelihood as stage
from tests.stages.jobs import experiment_with, job_of

IMAGES = 23
POINTS = torch.linspace(-1, 1, 2 * IMAGES).view(IMAGES, 2)
METHODS = ["beta", "exact_diag"]


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
    levels = schedule.of_experiment(experiment)
    denoiser = Denoiser(MixtureScore(mixture(experiment.data), levels).eval(), levels)
    monkeypatch.setattr(stage, "open_split", lambda job, split: POINTS)
    monkeypatch.setattr(
        stage,
        "read_rows",
        lambda job, split, rows, labelled: (POINTS[rows.start : rows.stop], None),
    )
    monkeypatch.setattr(stage, "load_denoiser", lambda job, score, labels: denoiser)
    monkeypatch.setattr(stage, "optimal_timesteps", lambda job, score: {})


def an_experiment() -> Experiment:
    chosen = [
        "network.scores=[exact]",
        f"evaluate.likelihood.methods=[{','.join(METHODS)}]",
        "evaluate.likelihood.timesteps={even: {kind: even}}",
        "evaluate.likelihood.nfe=[2,5]",
        "evaluate.likelihood.batch_size=5",
        f"train.timesteps.methods=[{','.join(METHODS)}]",
    ]
    return experiment_with("toy_mog9", chosen, METHODS)


def run(place: Path, rank: Rank, monkeypatch: pytest.MonkeyPatch) -> Job:
    for module in (stage, _results):
        monkeypatch.setattr(module, "current_rank", lambda: rank)
    job = job_of(an_experiment(), Task("likelihood"), place)
    stage.run(job)
    return job


@pytest.mark.parametrize("processes", [2, 3, 7])
def test_several_compute_what_one_computes(
    processes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = run(tmp_path / "alone", Rank(), monkeypatch)
    batches = [range(first, min(first + 5, IMAGES)) for first in range(0, IMAGES, 5)]
    names = [f"bits-exact-{batch.start}" for batch in batches]
    for index in reversed(range(processes)):
        shared = run(tmp_path / "shared", InTurn(index, processes, names), monkeypatch)
    one, several = (stage.Bounds(job.folder).load() for job in (alone, shared))
    assert [*one] == [*several]
    assert {row.measure for row in one} >= {"bits_per_dim", "bits_per_dim_prior"}
    assert all(row.value == row.value for row in one), "no NaN"
    assert len([*shared.state.iterdir()]) == len(batches)


def test_what_is_lost_meanwhile_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    batches = ["bits-exact-0", "bits-exact-5"]
    with pytest.raises(OcmError, match=r"bits-exact-5.*lost while others were computed"):
        run(tmp_path / "one", InTurn(0, 2, batches), monkeypatch)
