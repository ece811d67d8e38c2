"""Restored test images as a stage: what Gaussian data of a known score must give."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ocm_core.errors import OcmError
from ocm_core.params.compose import compose
from ocm_core.pipeline.stage import Task, stages
from ocm_core.results.table import Results
from ocm_core.stages import restoration
from tests.stages.jobs import gaussian_images, job_of, visible

COUNT, VARIANCE, SIGMA, TASK = 40, 0.1, 0.2, Task("restoration")
TASKS = (
    f"{{inpainting: {{operator: {{kind: inpainting}}, sigma: {SIGMA}}},"
    f" smaller: {{operator: {{kind: super_resolution}}, sigma: {SIGMA}}}}}"
)
Measured = Callable[..., tuple[Results, dict[str, np.ndarray]]]


@pytest.fixture
def measured(stored: Any, tmp_path: Path) -> Measured:
    stored(restoration, *gaussian_images(VARIANCE, COUNT))

    def run(batch: int = 400, images: int = COUNT) -> tuple[Results, dict[str, np.ndarray]]:
        block = f"{{tasks: {TASKS}, methods: [rademacher_1], algorithms: [mmps, dps], nfe: [4]"
        block += f", images: {images}, batch_size: {batch}}}"
        experiment = compose("digits", [f"evaluate.restoration={block}"])
        job = job_of(visible(experiment, TASK), TASK, tmp_path / f"{batch}")
        restoration.run(job)
        table = restoration.RestorationTable(job.folder)
        return table.load(), table.load_pictures()

    return run


def test_of_gaussian_data_scores_are_those_of_the_posterior(measured: Measured) -> None:
    """Pixels are independent: those that are missing have the data's variance, others less."""
    rows, pictures = measured()
    found = {(row.sampler, row.method, row.measure): row for row in rows}
    kept = VARIANCE * SIGMA**2 / (VARIANCE + SIGMA**2)
    shares = {VARIANCE**0.5: 45 / 64, kept**0.5: 19 / 64}  # of 64 pixels 45 are missing
    score = sum(share * deviation for deviation, share in shares.items()) * torch.pi**-0.5

    def value(measure: str, method: str = "rademacher_1", task: str = "inpainting") -> float:
        return found[task, method, measure].value

    assert value("crps") == pytest.approx(score, rel=0.05)
    assert value("restored_coverage") == pytest.approx(0.9, abs=0.02)
    error = sum(share * deviation**2 for deviation, share in shares.items()) * (1 + 1 / 19)
    assert value("restored_psnr") == pytest.approx(-10 * np.log10(error / 4), abs=0.2)
    for task in ("inpainting", "smaller"):
        assert value("data_chi2", task=task) == pytest.approx(1.0, abs=0.1)
        assert value("crps", "dps", task) > value("crps", task=task)
        assert value("crps_difference", task=task) == 0
        gap = found[task, "dps", "crps_difference"]
        assert gap.value == pytest.approx(value("crps", "dps", task) - value("crps", task=task))
        assert 0 < gap.error < 0.1 * gap.value
    passes = [value("passes", way) for way in ("rademacher_1", "mmps", "dps")]
    assert passes == [4 * 3, 4 * 7, 4 * 3]
    names = ["truth", "y"]
    names += [f"{way}: {k}" for way in ("rademacher_1", "mmps") for k in restoration.PICTURED]
    assert [*pictures] == [f"{task}/{name}" for task in ("inpainting", "smaller") for name in names]
    assert {x.shape for x in pictures.values()} == {(6, 8, 8)}
    assert pictures["inpainting/mmps: deviation"].dtype == np.float16


def test_batches_do_not_matter(measured: Measured) -> None:
    for one, other in zip(measured(23, 10)[0], measured(99, 10)[0], strict=True):
        assert one[:1] + one[3:] == other[:1] + other[3:]
        assert one.value == pytest.approx(other.value, rel=1e-3, abs=1e-5), one


def test_points_are_refused_and_who_does_not_ask_pays_nothing() -> None:
    block = "{tasks: {a: {operator: {kind: denoising}, sigma: 0.1}}, methods: [exact_diag]}"
    with pytest.raises(OcmError, match="operators are for images, and the data are points"):
        compose("toy_mog9", [f"++evaluate.restoration={block}"])
    declared = stages()["restoration"]
    assert declared.parts_of(compose("digits", ["evaluate.restoration=null"])) == []
    assert declared.work(compose("digits"), "all").passes > 0
