"""Error bars of noisy test images as a stage: what Gaussian data of a known score must give."""

from collections.abc import Callable
from dataclasses import replace
from math import erf, log, log10, pi, sqrt
from pathlib import Path
from typing import Any

import pytest
import torch

from ocm_core.params.compose import compose
from ocm_core.pipeline.stage import Task
from ocm_core.results.table import Results
from ocm_core.stages import denoising
from ocm_core.uses.denoise import correlation
from tests.stages.jobs import LEVELS, gaussian_images, job_of, visible

VARIANCE, TASK = 0.1, Task("denoising")
C = torch.from_numpy(LEVELS.alpha_bar * VARIANCE / (LEVELS.alpha_bar * VARIANCE + LEVELS.b))
Measured = Callable[..., Results]


@pytest.fixture
def measured(stored: Any, tmp_path: Path) -> Measured:
    """Return the rows of a table of moments that is so many times the true one."""
    data, denoiser = gaussian_images(VARIANCE, count=400)

    def run(factor: float = 1.0, batch: int = 100, methods: str = "analytic") -> Results:
        stored(denoising, data, replace(denoiser, moments=factor * C))
        block = f"{{methods: [{methods}], sigmas: [0.1, 0.5, 2.0], batch_size: {batch}}}"
        experiment = compose("digits", [f"evaluate.denoising={block}", "+methods.exact_full=null"])
        job = job_of(visible(experiment, TASK), TASK, tmp_path / f"{factor}-{batch}-{methods}")
        denoising.run(job)
        return denoising.DenoisingTable(job.folder).load()

    return run


@pytest.mark.parametrize("factor", [1.0, 0.25])
def test_of_gaussian_data_everything_is_known(factor: float, measured: Measured) -> None:
    rows = measured(factor)
    times = rows.distinct("timesteps")
    assert len(times) == 3
    for t in times:
        alpha_bar, b = LEVELS.marginal(int(t))
        true, nominal = float(C[int(t)]) * b / alpha_bar, torch.arange(1, 10) / 10
        found = {row.measure: row for row in rows.select(timesteps=t)}
        nll = 0.5 * (log(2 * pi * factor * true) + 1 / factor)
        assert found["denoising_nll"].value == pytest.approx(nll, abs=0.02 / factor)
        assert 0 < found["denoising_nll"].error < 0.01 / factor
        reach = torch.special.ndtri((1 + nominal) / 2) * sqrt(factor / 2)
        inside = torch.tensor([erf(z) for z in reach])
        assert found["coverage"].value == pytest.approx(float(inside[-1]), abs=0.01)
        gap = float((inside - nominal).abs().mean())
        assert found["calibration_error"].value == pytest.approx(gap, abs=0.01)
        assert found["psnr"].value == pytest.approx(-10 * log10(true / 4), abs=0.1)
        assert found["denoising_floor"].value == 0
        assert "error_correlation" not in found  # the same variance for all images


def test_batches_do_not_matter_and_a_whole_covariance_is_the_same_one(measured: Measured) -> None:
    methods = "analytic,rademacher_1,exact_full"
    few, many = measured(batch=7, methods=methods), measured(batch=400, methods=methods)
    assert [row[3:9] for row in few] == [row[3:9] for row in many]
    for one, other in zip(few, many, strict=True):
        assert one.value == pytest.approx(other.value, rel=1e-4, abs=1e-5), one
    diagonal, full = (
        [row.value for row in many.select(method=m, measure="denoising_nll")]
        for m in ("analytic", "exact_full")
    )
    assert full == pytest.approx(diagonal, abs=1e-3)


def test_what_is_not_positive_is_counted_and_has_a_density(measured: Measured) -> None:
    rows = measured(-1.0)
    assert [row.value for row in rows.select(measure="denoising_floor")] == [1.0] * 3
    floor = LEVELS.beta_tilde(1, 2)
    for nll, psnr in zip(*(rows.select(measure=m) for m in ("denoising_nll", "psnr")), strict=True):
        assert nll.timesteps == psnr.timesteps
        least = 0.5 * (log(2 * pi * floor) + 4 * 10 ** (-psnr.value / 10) / floor)
        assert nll.value > 0.95 * least > 0


def test_a_correlation_has_the_error_that_it_should() -> None:
    draw, r, n = torch.Generator().manual_seed(1), 0.6, 20_000
    u, v = torch.randn(2, n, generator=draw, dtype=torch.float64)
    found, error = correlation(3 * u - 1, r * u + sqrt(1 - r**2) * v + 5)
    assert found == pytest.approx(r, abs=4 * error)
    assert error == pytest.approx((1 - r**2) / sqrt(n), rel=0.05)
