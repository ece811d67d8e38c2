"""Evaluations on test images: shared among processes, and of a score that is known."""

from collections.abc import Callable
from dataclasses import dataclass
from math import prod, sqrt
from pathlib import Path
from typing import Any

import pytest
import torch

from ocm_core.diffusion import schedule
from ocm_core.diffusion.denoiser import Denoiser, TimeConvention
from ocm_core.diffusion.mixture import mixture
from ocm_core.distributed import Rank
from ocm_core.errors import OcmError
from ocm_core.networks.converted import denoiser_of
from ocm_core.networks.mixture import MixtureScore
from ocm_core.params.compose import compose
from ocm_core.pipeline.job import Job
from ocm_core.pipeline.stage import Task
from ocm_core.stages import _results, likelihood, score_loss
from tests.networks.test_converted import GaussianScore
from tests.stages.jobs import experiment_with, job_of


@pytest.fixture
def stored(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any, torch.Tensor, Denoiser], None]:
    """Let a stage find these test images and this denoiser."""

    def put(stage: Any, data: torch.Tensor, denoiser: Denoiser) -> None:
        monkeypatch.setattr(stage, "open_split", lambda job, split: data)
        monkeypatch.setattr(
            stage, "read_rows", lambda job, split, rows, labelled: (data[rows], None)
        )
        name = "load_denoiser" if stage is likelihood else "load_score"
        monkeypatch.setattr(stage, name, lambda *_: denoiser)

    return put


# The likelihood: processes that share its batches leave what one leaves

IMAGES = 23
METHODS = ["beta", "exact_diag"]
CHOSEN = [
    "network.scores=[exact]",
    f"evaluate.likelihood.methods=[{','.join(METHODS)}]",
    "evaluate.likelihood.timesteps={even: {kind: even}}",
    "evaluate.likelihood.nfe=[2,5]",
    "evaluate.likelihood.batch_size=5",
    f"train.timesteps.methods=[{','.join(METHODS)}]",
]


@dataclass(frozen=True)
class InTurn(Rank):
    """One of several processes that run one after another, the first one last."""

    decided: Any = None

    def agreed(self, decide: Callable[[], Any]) -> Any:
        return self.decided

    def wait(self) -> None:
        pass


@pytest.fixture
def run(stored: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[[Path, Rank], Job]:
    experiment = experiment_with("toy_mog9", CHOSEN, METHODS)
    levels = schedule.of_experiment(experiment)
    denoiser = Denoiser(MixtureScore(mixture(experiment.data), levels).eval(), levels)
    stored(likelihood, torch.linspace(-1, 1, 2 * IMAGES).view(IMAGES, 2), denoiser)

    def run(place: Path, rank: Rank) -> Job:
        for module in (likelihood, _results):
            monkeypatch.setattr(module, "current_rank", lambda: rank)
        job = job_of(experiment, Task("likelihood"), place)
        likelihood.run(job)
        return job

    return run


@pytest.mark.parametrize("processes", [2, 3, 7])
def test_several_compute_what_one_computes(processes: int, run: Any, tmp_path: Path) -> None:
    alone = run(tmp_path / "alone", Rank())
    batches = [f"bits-exact-{first}" for first in range(0, IMAGES, 5)]
    for index in reversed(range(processes)):
        shared = run(tmp_path / "shared", InTurn(index, processes, batches))
    one, several = (likelihood.Bounds(job.folder).load() for job in (alone, shared))
    assert [*one] == [*several]
    assert {row.measure for row in one} >= {"bits_per_dim", "bits_per_dim_prior"}
    assert all(row.value == row.value for row in one), "no NaN"
    assert len([*shared.state.iterdir()]) == len(batches)


def test_what_is_lost_meanwhile_is_said(run: Any, tmp_path: Path) -> None:
    batches = ["bits-exact-0", "bits-exact-5"]
    with pytest.raises(OcmError, match=r"bits-exact-5.*lost while others were computed"):
        run(tmp_path / "one", InTurn(0, 2, batches))


@pytest.mark.parametrize("stage", [likelihood, score_loss])
def test_the_work_is_that_of_test_images(stage: Any) -> None:
    """Those of the training set were once counted, too."""
    block = f"++evaluate.{stage.STAGE.name}"
    given = [f"{block}.images={count}" for count in ("null", 180)]
    loss = "++evaluate.score_loss={batch_size: 64}"
    whole, some = (compose("digits", [loss, one]) for one in given)
    ratio = stage.STAGE.work(whole, "all").passes / stage.STAGE.work(some, "all").passes
    assert ratio == pytest.approx(whole.data.count_items()["test"] / 180)


# The loss of a score that is known in closed form

VARIANCE = 0.25
SHAPE, ITEMS = (1, 8, 8), 1000
LEVELS = schedule.build("linear", 1000)


@pytest.fixture
def loss(stored: Any, tmp_path: Path) -> Callable[..., tuple[float, float]]:
    """Return the loss on so many images, and its error."""
    data = VARIANCE**0.5 * torch.randn(ITEMS, *SHAPE, generator=torch.Generator().manual_seed(0))
    network, time = GaussianScore(LEVELS, VARIANCE, "epsilon"), TimeConvention(0, 1 / 1000)
    stored(score_loss, data, denoiser_of(network.eval(), LEVELS, time, "epsilon", 1.0))

    def measured(images: int | None, batch: int = 64) -> tuple[float, float]:
        count = "null" if images is None else images
        block = f"++evaluate.score_loss={{images: {count}, batch_size: {batch}, seed: 3}}"
        place = tmp_path / f"{images}-{batch}"
        job = job_of(compose("digits", [block]), Task("score_loss"), place)
        score_loss.run(job)
        (row,) = score_loss.ScoreLoss(job.folder).load()
        return row.value, float(row.error)

    return measured


@pytest.mark.parametrize("images", [None, 500])
def test_of_gaussian_data_it_is_known(images: int | None, loss: Any) -> None:
    """Its best prediction leaves ᾱ s² / (ᾱ s² + b) of ε²; at all timesteps or every other."""
    signal = VARIANCE * LEVELS.alpha_bar[1:]
    left = signal / (signal + LEVELS.b[1:])
    noise = sqrt(2 / prod(SHAPE) * float((left**2).mean()) / (images or ITEMS))
    value, error = loss(images)
    assert value == pytest.approx(float(left.mean()), abs=4 * noise)
    assert noise < error < 0.1 * value


def test_batches_do_not_matter(loss: Any) -> None:
    assert loss(300, 7) == pytest.approx(loss(300, 300), rel=1e-6)
