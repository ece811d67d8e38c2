"""Error bars of noisy test images as a stage: what Gaussian data of a known score must give."""

from collections.abc import Callable
from dataclasses import replace
from math import erf, log, log10, pi, sqrt
from pathlib import Path

import pytest
import torch

from ocm_core.diffusion import schedule as schedules
from ocm_core.diffusion.denoiser import TimeConvention
from ocm_core.errors import OcmError
from ocm_core.networks.converted import denoiser_of
from ocm_core.params.compose import compose
from ocm_core.pipeline.stage import Task
from ocm_core.results.table import Results
from ocm_core.stages import _evaluation, denoising, encode
from ocm_core.uses.denoise import correlation
from tests.networks.test_converted import GaussianScore
from tests.stages.jobs import job_of, visible

SHAPE, COUNT, VARIANCE = (1, 8, 8), 400, 0.1
LEVELS, TASK = schedules.linear(1000), Task("denoising")
C = torch.from_numpy(LEVELS.alpha_bar * VARIANCE / (LEVELS.alpha_bar * VARIANCE + LEVELS.b))
Measured = Callable[..., Results]


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Measured:
    """Return the rows of a table of moments that is so many times the true one."""
    draw = torch.Generator().manual_seed(0)
    data = VARIANCE**0.5 * torch.randn(COUNT, *SHAPE, generator=draw)
    network = GaussianScore(LEVELS, VARIANCE, "epsilon").eval()
    denoiser = denoiser_of(network, LEVELS, TimeConvention(0, 1 / 1000), "epsilon", 1.0)
    monkeypatch.setattr(encode, "open_split", lambda job, split: data)
    monkeypatch.setattr(_evaluation, "read_rows", lambda job, split, rows, _: (data[rows], None))

    def run(factor: float = 1.0, batch: int = 100, methods: str = "analytic") -> Results:
        held = replace(denoiser, moments=factor * C)
        monkeypatch.setattr(_evaluation, "load_denoiser", lambda *_: held)
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


@pytest.mark.parametrize(
    ("block", "said"),
    [
        ("methods=[beta]", "'beta' is no estimate of Cov"),
        ("methods=[lanczos]", "'lanczos' is no estimate of Cov"),
        ("methods=[ocn]", "evaluate.denoising.methods: 'ocn' is unknown; did you mean 'ocm'"),
        ("sigmas=[0.5, 0.001]", r"evaluate.denoising.sigmas: sigma\[1\] = 0.001"),
        ("sigmas=[0.0]", "evaluate.denoising.sigmas"),
    ],
)
def test_what_cannot_be_measured_is_refused(block: str, said: str) -> None:
    with pytest.raises(OcmError, match=said):
        compose("digits", [f"evaluate.denoising.{block}"])
