"""What a job asks of a cluster, and how long all of them take on so many GPUs."""

from __future__ import annotations

import pytest

from ocm_core.cells import cells_of
from ocm_core.errors import OcmError
from ocm_core.params.resolved import load
from ocm_core.pipeline.table import LIGHT, Task, tasks
from ocm_core.planning import job_needs
from ocm_core.planning.job_needs import JobNeeds, needs_of
from ocm_core.planning.roofline import A100, GPUS, gpu_named
from ocm_core.planning.schedule import wall_hours
from tests.planning.test_cost import workload

HEADS = Task("heads", "published")


@pytest.fixture
def experiment(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(job_needs, "_workload", workload)
    return load("imagenet256")


def test_gpus_share_the_hours_and_nodes_the_memory(experiment) -> None:
    one, eight, spread = (
        needs_of(experiment, HEADS, gpus, nodes, "A100-80GB")
        for gpus, nodes in ((1, 1), (8, 1), (16, 2))
    )
    assert one.hours == pytest.approx(8 * eight.hours) == pytest.approx(16 * spread.hours)
    assert eight.resources.memory == spread.resources.memory
    assert eight.resources.memory == pytest.approx(8 * one.resources.memory, rel=1e-3)


def test_a_time_limit_is_kept_to(experiment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_needs, "gpu_hours", lambda *of: 30.0)
    minutes = [
        needs_of(experiment, HEADS, 1, 1, "H100", longest).resources.minutes
        for longest in (0, 24 * 60)
    ]
    assert minutes == [job_needs.START + 2 * 30 * 60, 24 * 60]


def test_what_the_model_does_not_know_is_the_table_s(experiment) -> None:
    smoke = load("imagenet256_smoke")
    for task in tasks(smoke):
        found = needs_of(smoke, task, 1, 1, "H100")
        assert found.resources.minutes in (240, 24 * 60) and not found.hours


def test_a_task_is_its_share_of_the_stage() -> None:
    whole = workload("imagenet256")
    for stage in ("sample", "evaluate_images", "encode"):
        parts = [whole.task(task) for task in tasks(whole.experiment) if task.stage == stage]
        (work,) = [work for work in whole.stages() if work.stage == stage]
        assert len(parts) > 1
        for name in ("drawn", "float64", "disk"):
            assert sum(getattr(part, name) for part in parts) == pytest.approx(getattr(work, name))
        assert sum(p.gpu.operations for p in parts) == pytest.approx(work.gpu.operations)


def test_the_longest_cells_come_first() -> None:
    """Sampling imagenet256 on eight GPUs: the table's order leaves them idle at the end."""
    experiment = load("imagenet256")
    jobs = [
        JobNeeds(task, 1, sum(cell.steps for cell in cells_of(experiment, task.part)), LIGHT)
        for task in tasks(experiment)
        if task.stage == "sample"
    ]
    least = sum(job.hours for job in jobs) / 8
    longest_first = wall_hours(experiment, jobs, 8)
    assert least <= longest_first < 1.05 * least
    assert wall_hours(experiment, jobs, 8, lambda task: 0) > 1.1 * longest_first


def test_jobs_wait_for_their_inputs_and_for_gpus() -> None:
    experiment = load("imagenet256_smoke")
    chain = [Task("heads", "published"), Task("selection", "published")]
    jobs = [JobNeeds(task, 2, 3.0, LIGHT) for task in chain]
    assert wall_hours(experiment, jobs, 4) == 6.0
    apart = [JobNeeds(Task("encode", part), 1, 1.0, LIGHT) for part in ("1of2", "2of2")]
    assert [wall_hours(experiment, apart, gpus) for gpus in (1, 2)] == [2.0, 1.0]


def test_gpus_are_known_by_their_data_sheets() -> None:
    assert gpu_named("a100-80gb") is A100 and gpu_named("H100") is GPUS[2]
    with pytest.raises(OcmError, match="no data sheet of 'K80' is known"):
        gpu_named("K80")
