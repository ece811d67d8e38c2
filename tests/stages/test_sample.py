"""What the samples of a cell depend on, and what of them is drawn again."""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ocm_core.cells import Cell
from ocm_core.io.checksums import remove_records
from ocm_core.params.compose import compose
from ocm_core.pipeline.job import Inputs, Job, MadeOf
from ocm_core.pipeline.sources import digest, sources
from ocm_core.pipeline.stage import Task
from ocm_core.schema.experiment import Experiment
from ocm_core.stages import sample
from ocm_core.stages.sample import Samples, begin_store, write_batches
from tests.stages.jobs import finished, job_of
from tests.store.data import digests

CELL = Cell("exact", "ddpm", "ocm_relative", 10, 1.0, 0)
NOT_ITS_OWN = [
    "sample.samplers.ddpm.methods=[beta,ocm_relative,exact_full]",
    "sample.samplers.ddpm.grids=[{nfe: [10]}]",
    "~sample.samplers.ddim",
    "++sample.samplers.third={kind: ddpm, grids: [{nfe: [7]}], methods: [beta]}",
    "sample.split=[nfe]",
    "sample.seeds=[0, 7]",
    "sample.count=500",
    "network.scores=[exact]",
    "methods.rademacher_1.probes=3",
    "train.heads.learning_rate=0.125",
    "report.title=Another",
]
ITS_OWN = [
    "data.std=0.2",
    "schedule.steps=500",
    "network.width=64",
    "sample.clip.x0=2.0",
    "sample.samplers.ddpm.posterior_factor=0.5",
    "sample.samplers.ddpm.timesteps={kind: quadratic}",
    "methods.ocm_relative.head.link=tapered",
    "sample.execution.channels_last=true",
]


def facts(*overrides: str) -> Any:
    experiment = compose("toy_mog9", overrides)
    modules, found = sample.made_of(Inputs(experiment, {}), CELL, {})
    return digest(sources(modules)), found


@pytest.mark.parametrize("override", NOT_ITS_OWN + ITS_OWN)
def test_a_cell_depends_on_what_is_its_own(override: str) -> None:
    assert (facts(override) != facts()) == (override in ITS_OWN)


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


def drawn_by(place: Path, count: int, earlier: Path | None = None) -> Job:
    """Draw samples whose values are their numbers, over an earlier artifact."""
    job = replace(job_of(few(count), Task("sample", "all"), place), earlier=earlier)

    def draw(cell: Cell, rows: range) -> tuple[np.ndarray, dict[str, int]]:
        DRAWN[rows] += 1
        values = np.arange(rows.start, rows.stop, dtype=np.float32)
        return np.stack([values, values], 1), {"below": 1, "entries": 8}

    wanted = begin_store(job, CELL, MadeOf(["ocm_core.stages.sample"], {}))
    write_batches(job, CELL, wanted, draw)
    return job


DRAWN = Counter[range]()


@pytest.fixture(autouse=True)
def nothing_drawn() -> None:
    DRAWN.clear()


@pytest.mark.parametrize("left", [b"", b'{"0": {"below": 9', b"\xff", None])
def test_samples_whose_clamped_counts_are_damaged_are_drawn_again(
    tmp_path: Path, left: bytes | None
) -> None:
    job = drawn_by(tmp_path, 6)
    before = digests(job.folder)
    (counts,) = job.folder.glob("*/clamped/4.json")
    counts.unlink() if left is None else counts.write_bytes(left)
    drawn_by(tmp_path, 6)
    assert digests(job.folder) == before
    assert {range(4): 1, range(4, 6): 2} == DRAWN
    assert Samples(job.folder).read(CELL).clamped == 2 / 16


@pytest.mark.parametrize(
    ("count", "more"),
    [
        (16, [range(12, 16)]),
        (14, [range(12, 14)]),
        (10, [range(8, 10)]),  # of the old last batch nothing is known to be the same
        (8, []),
    ],
)
def test_more_or_fewer_samples_go_on_with_whole_batches(
    tmp_path: Path, count: int, more: list[range]
) -> None:
    earlier = finished(drawn_by(tmp_path / "first", 12))
    DRAWN.clear()
    grown = drawn_by(tmp_path / "second", count, earlier)
    assert [*DRAWN] == more
    fresh = drawn_by(tmp_path / "fresh", count)
    remove_records(grown.folder)
    remove_records(fresh.folder)
    assert digests(grown.folder) == digests(fresh.folder)
    assert Samples(grown.folder).read(CELL)[:][:, 0].tolist() == [*range(count)]
