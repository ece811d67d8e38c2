"""What the samples of a cell depend on, and what of them is drawn again."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ocm_core.cells import Cell
from ocm_core.params.compose import compose
from ocm_core.pipeline.job import Inputs
from ocm_core.pipeline.sources import digest, sources
from ocm_core.pipeline.stage import Task
from ocm_core.schema.experiment import Experiment
from ocm_core.stages import sample
from ocm_core.stages.sample import Samples, write_store
from tests.stages.jobs import job_of
from tests.store.data import digests

CELL = Cell("exact", "ddpm", "ocm_relative", 10, 1.0, 0)
NOT_ITS_OWN = [
    "sample.samplers.ddpm.methods=[beta,ocm_relative,exact_full]",
    "sample.samplers.ddpm.grids=[{nfe: [10]}]",
    "~sample.samplers.ddim",
    "++sample.samplers.third={kind: ddpm, grids: [{nfe: [7]}], methods: [beta]}",
    "sample.split=[nfe]",
    "network.scores=[exact]",
    "methods.rademacher_1.probes=3",
    "train.heads.learning_rate=0.125",
    "report.title=Another",
]
ITS_OWN = [
    "data.std=0.2",
    "schedule.steps=500",
    "network.width=64",
    "sample.count=500",
    "sample.clip.x0=2.0",
    "sample.samplers.ddpm.covariance_scale=0.5",
    "sample.samplers.ddpm.timesteps={kind: quadratic}",
    "methods.ocm_relative.head.link=tapered",
    "sample.execution.channels_last=true",
]


def facts(*overrides: str) -> Any:
    experiment = compose("toy_mog9", overrides)
    code = digest(sources(sample._modules(experiment, CELL)))
    return code, sample._facts(Inputs(experiment, {}), [CELL])


@pytest.mark.parametrize("override", NOT_ITS_OWN)
def test_a_cell_does_not_depend_on(override: str) -> None:
    assert facts(override) == facts()


@pytest.mark.parametrize("override", ITS_OWN)
def test_a_cell_depends_on(override: str) -> None:
    assert facts(override) != facts()


@pytest.mark.parametrize(
    ("cell", "inputs"),
    [
        (Cell("exact", "ddpm", "beta", 10, 1.0, 0), set()),
        (Cell("trained", "ddpm", "beta", 10, 1.0, 0), {"score/trained"}),
        (Cell("trained", "ddim", "analytic", 10, 1.0, 0), {"score/trained", "moments/trained"}),
        (Cell("trained", "ddpm", "ocm_relative", 10, 1.0, 0), {"score/trained", "heads/trained"}),
    ],
)
def test_a_cell_is_drawn_from_its_own_inputs(cell: Cell, inputs: set[str]) -> None:
    taken = {str(task) for task in sample._taken(compose("toy_mog9"), [cell])}
    assert taken - {"score/exact"} == inputs


def few(count: int) -> Experiment:
    return compose("toy_mog9", [f"sample.count={count}", "sample.batch_size=4"])


@pytest.mark.parametrize("left", [b"", b'{"0": {"below": 9', b"\xff", None])
def test_samples_whose_clamped_counts_are_damaged_are_drawn_again(
    tmp_path: Path, left: bytes | None
) -> None:
    job = job_of(few(6), Task("sample", "all"), tmp_path)
    drawn = Counter[range]()

    def draw(cell: Cell, rows: range) -> tuple[np.ndarray, dict[str, int]]:
        drawn[rows] += 1
        return np.full((len(rows), 2), rows.start, np.float32), {"below": 1, "entries": 8}

    write_store(job, [CELL], draw)
    before = digests(job.folder)
    (counts,) = job.folder.glob("*/clamped/4.json")
    counts.unlink() if left is None else counts.write_bytes(left)
    write_store(job, [CELL], draw)
    assert digests(job.folder) == before
    assert drawn == {range(4): 1, range(4, 6): 2}
    assert Samples(job.folder).read(CELL).clamped == 2 / 16
