"""The loss of a score network that is known in closed form."""

from __future__ import annotations

from math import prod, sqrt
from pathlib import Path

import pytest
import torch

from ocm_core.diffusion import schedule
from ocm_core.diffusion.denoiser import TimeConvention
from ocm_core.networks.converted import denoiser_of
from ocm_core.params.compose import compose
from ocm_core.pipeline.stage import Task
from ocm_core.stages import score_loss as stage
from tests.networks.test_converted import GaussianScore
from tests.stages.jobs import job_of

VARIANCE = 0.25
SHAPE, ITEMS = (1, 8, 8), 1000
LEVELS = schedule.build("linear", 1000)


@pytest.fixture(autouse=True)
def _inputs(monkeypatch: pytest.MonkeyPatch) -> None:
    data = VARIANCE**0.5 * torch.randn(ITEMS, *SHAPE, generator=torch.Generator().manual_seed(0))
    network, time = GaussianScore(LEVELS, VARIANCE, "epsilon"), TimeConvention(0, 1 / 1000)
    denoiser = denoiser_of(network.eval(), LEVELS, time, "epsilon", 1.0)
    monkeypatch.setattr(stage, "open_split", lambda job, split: data)
    monkeypatch.setattr(
        stage, "read_rows", lambda job, split, rows, labelled: (data[rows.start : rows.stop], None)
    )
    monkeypatch.setattr(stage, "load_score", lambda job, score: denoiser)


def measured(place: Path, images: int | None, batch: int = 64) -> tuple[float, float]:
    count = "null" if images is None else images
    block = f"++evaluate.score_loss={{images: {count}, batch_size: {batch}, seed: 3}}"
    job = job_of(compose("digits", [block]), Task("score_loss"), place / f"{images}-{batch}")
    stage.run(job)
    (row,) = stage.ScoreLoss(job.folder).load()
    return row.value, float(row.error)


@pytest.mark.parametrize("images", [None, 500])
def test_of_gaussian_data_it_is_known(images: int | None, tmp_path: Path) -> None:
    """Its best prediction leaves ᾱ s² / (ᾱ s² + b) of ε²; at all timesteps or every other."""
    signal = VARIANCE * LEVELS.alpha_bar[1:]
    left = signal / (signal + LEVELS.b[1:])
    noise = sqrt(2 / prod(SHAPE) * float((left**2).mean()) / (images or ITEMS))
    loss, error = measured(tmp_path, images)
    assert loss == pytest.approx(float(left.mean()), abs=4 * noise)
    assert noise < error < 0.1 * loss


def test_batches_do_not_matter(tmp_path: Path) -> None:
    assert measured(tmp_path, 300, 7) == pytest.approx(measured(tmp_path, 300, 300), rel=1e-6)
