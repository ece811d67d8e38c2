"""Distances are measured once per cell: more cells or seeds leave the others as they are."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from ocm_core.cells import Cell, cells_of
from ocm_core.features import FeatureSpace
from ocm_core.metrics.frechet import Statistics
from ocm_core.metrics.precision_recall import Manifold
from ocm_core.params.compose import compose
from ocm_core.pipeline.job import Job, MadeOf
from ocm_core.pipeline.stage import Task
from ocm_core.stages import distances, sample
from ocm_core.stages.distances import Distances
from ocm_core.stages.reference import Reference
from ocm_core.stages.sample import Samples
from tests.stages.jobs import finished, job_of, visible

FEW = ["sample.count=12", "features.manifold_images=null", "sample.batch_size=12"]
SAMPLERS = "sample.samplers={{ddpm: {{kind: ddpm, grids: [{{nfe: [{}]}}], methods: [{}]}}}}"
BEFORE = [*FEW, SAMPLERS.format("5", "beta,beta_tilde"), "sample.seeds=[0,1]"]
EDITS = {  # how many are left of the old ones, of how many
    "more": ([*FEW, SAMPLERS.format("10,5", "analytic,beta"), "sample.seeds=[1,2]"], 1, 8),
    "samples": ([*BEFORE, "sample.count=16"], 0, 4),
    "neighbours": ([*BEFORE, "features.neighbours=2"], 0, 4),
    "the page": ([*BEFORE, "report.title=Another", "train.heads.learning_rate=0.1"], 4, 4),
}


def noise(cell: Cell, rows: range) -> tuple[np.ndarray, dict[str, int]]:
    source = np.random.default_rng([cell.nfe, cell.seed, len(cell.method)])
    return source.uniform(-1, 1, (len(rows), 1, 8, 8)).astype(np.float32), {}


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Job]:
    """Measure samples that are noise of their cell, in a space of eight pixels."""
    space = FeatureSpace("pixels", None, "cpu", lambda images: images.flatten(1)[:, :8].float())
    monkeypatch.setattr(distances, "load_space", lambda job, name: space)
    features = torch.randint(0, 17, (40, 8), generator=torch.Generator().manual_seed(0)).float()
    made = job_of(None, Task("reference"), tmp_path / "reference")
    Reference(made.folder).save(Statistics.over([features]), Manifold.of(features, neighbours=3))
    reference = finished(made)

    def run(name: str, overrides: list[str], earlier: Path | None = None) -> Job:
        experiment = compose("digits", overrides)
        drawn = job_of(experiment, Task("sample", "ddpm"), tmp_path / name / "samples")
        for cell in cells_of(experiment, "ddpm"):
            batches = sample.begin_store(drawn, cell, MadeOf([], {}))
            sample.write_batches(drawn, cell, batches, noise)
        inputs = {
            Samples.task("ddpm"): finished(drawn),
            Reference.task("classifier"): reference,
        }
        task = Task("distances", "ddpm")
        job = job_of(visible(experiment, task), task, tmp_path / name, inputs)
        distances.run(replace(job, earlier=earlier))
        return job

    return run


def pieces(folder: Path) -> set[int]:
    return {file.stat().st_ino for file in folder.glob("pieces/*.safetensors")}


@pytest.mark.parametrize("edit", EDITS)
def test_a_measured_cell_stays(edit: str, run: Callable[..., Job]) -> None:
    overrides, left, of = EDITS[edit]
    before = finished(run("before", BEFORE))
    grown, fresh = run("grown", overrides, before), run("fresh", overrides)
    assert len(pieces(before) & pieces(grown.folder)) == left
    assert len(pieces(grown.folder)) == of
    one, other = (Distances(job.folder) for job in (grown, fresh))
    assert [*one.load()] == [*other.load()] and len({row.value for row in one.load()}) > of
    cell = cells_of(grown.experiment, "ddpm")[0]
    assert one.shown(cell).shape == (12, 8, 8)
    assert np.array_equal(one.shown(cell), other.shown(cell))
