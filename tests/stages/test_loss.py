"""The loss of a score network that is known in closed form."""

from __future__ import annotations

from math import prod, sqrt
from pathlib import Path

import pytest
import torch

from ocm_core.artifacts.results import load as load_results
from ocm_core.diffusion import schedule
from ocm_core.diffusion.denoiser import TimeConvention
from ocm_core.networks.converted import denoiser_of
from ocm_core.params.document import validate
from ocm_core.params.resolved import load
from ocm_core.pipeline.job import Job
from ocm_core.stages import evaluate_loss as stage
from tests.networks.test_converted import GaussianScore

VARIANCE = 0.25
SHAPE, ITEMS = (1, 8, 8), 1000
LEVELS = schedule.build("linear", 1000)


def a_job(folder: Path, images: int | None, batch: int) -> Job:
    tree = load("digits").model_dump(mode="json")
    tree["evaluate"]["loss"] = {"images": images, "batch_size": batch, "seed": 3}
    for name in ("artifact", "state"):
        (folder / name).mkdir(parents=True)
    experiment = validate(tree, Path("some.yaml"))
    inside = (folder / "artifact", folder / "state")
    return Job(experiment, stage.__name__, "all", {}, *inside, {}, "cpu")


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


def found(tmp_path: Path, images: int | None, batch: int = 64) -> tuple[float, float]:
    job = a_job(tmp_path / f"{images}-{batch}", images, batch)
    stage.run(job)
    results = load_results(job.folder)
    return float(results["loss"].item()), float(results["loss_se"].item())


@pytest.mark.parametrize("images", [None, 500])
def test_of_gaussian_data_it_is_known(images: int | None, tmp_path: Path) -> None:
    """Its best prediction leaves ᾱ s² / (ᾱ s² + b) of ε²; at all timesteps or every other."""
    signal = VARIANCE * LEVELS.alpha_bar[1:]
    left = signal / (signal + LEVELS.b[1:])
    noise = sqrt(2 / prod(SHAPE) * float((left**2).mean()) / (images or ITEMS))
    loss, error = found(tmp_path, images)
    assert loss == pytest.approx(float(left.mean()), abs=4 * noise)
    assert noise < error < 0.1 * loss


def test_batches_do_not_matter(tmp_path: Path) -> None:
    assert found(tmp_path, 300, 7) == pytest.approx(found(tmp_path, 300, 300), rel=1e-6)
