"""One measured pace gives the time of a run, of a task, and what a job asks for."""

from __future__ import annotations

from pathlib import Path

import pytest

from ocm_core.doctor import pace, times
from ocm_core.doctor.pace import ASSUMED, metric, network_size, pace_of
from ocm_core.doctor.times import START, duration, expected_time, job_memory, job_minutes
from ocm_core.params.compose import compose
from ocm_core.pipeline.stage import Task

from .stages import BLUR, DATA, TRAIN, graph_on

DIGITS = compose("digits")
ENCODE = Task("encode")


@pytest.fixture
def timings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Pretend that every network does 1 GFLOP/s, and list what was timed."""
    timed: list[str] = []

    def one_giga(experiment: object, device: str) -> float:
        timed.append(device)
        return 1e9

    monkeypatch.setattr(pace, "_timed", one_giga)
    return timed


def test_a_pace_is_measured_once_and_kept(timings: list[str], kept_in_folder: Path) -> None:
    assert [pace_of(DIGITS).rate for _ in range(3)] == [1e9] * 3
    assert timings == ["cpu"]
    kept_in_folder.write_text('{"cut off')
    assert pace_of(DIGITS).measured and timings == ["cpu", "cpu"]
    pace_of(compose("digits", ["network.config.base_channels=32"]))  # another network
    assert len(timings) == 3


def test_a_gpu_that_is_not_here_is_assumed(timings: list[str]) -> None:
    found = pace_of(DIGITS, "cuda")
    assert (found.rate, found.measured) == (ASSUMED["cuda"], False)
    assert str(found) == "54.6 TFLOP/s on cuda, assumed, not measured"
    assert timings == []


def test_the_score_network_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "SECONDS", 0.05)
    for name in ("digits", "toy_mog9"):
        assert 1e6 < pace_of(compose(name)).rate < 1e13


def test_a_network_larger_than_the_memory_is_not_timed(
    timings: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.sysconf", lambda name: 1000)
    assert not pace_of(DIGITS).measured and timings == []


def test_the_longest_path_or_the_sum_over_the_workers(fake_stages: None) -> None:
    graph = graph_on(DIGITS)
    todo = [(graph, task) for task in (DATA, ENCODE, TRAIN, BLUR)]
    taken = {(graph, DATA): 1.0, (graph, ENCODE): 2.0, (graph, TRAIN): 60.0, (graph, BLUR): 40.0}
    assert times.wall_seconds(todo, taken, workers=8) == 63
    assert times.wall_seconds(todo, taken, workers=1) == 103


def test_a_run_says_how_long_it_takes(fake_stages: None, timings: list[str]) -> None:
    graph = graph_on(DIGITS)
    work = 3e6 * network_size(DIGITS, "score").operations / 1e9
    text = expected_time([(graph, DATA), (graph, TRAIN)], cores=2)
    assert text == (
        f"2 jobs, about {duration(2 * START + work)}"
        " (1 GFLOP/s on cpu, measured on its score network)"
    )
    assert "TFLOP/s on cuda, assumed" in expected_time([(graph, TRAIN)], cores=2, gpus=8)


def test_a_job_asks_for_more_in_every_attempt(fake_stages: None, timings: list[str]) -> None:
    first, second = (job_minutes(DIGITS, TRAIN, attempt) for attempt in (1, 2))
    assert times.JOB_START < first < second
    experiment = compose("imagenet256")
    alone, shared = (job_minutes(experiment, TRAIN, gpus=gpus) for gpus in (1, 8))
    expected = 3e6 * network_size(experiment, "score").operations / ASSUMED["cuda"] / 60
    assert alone == pytest.approx(times.JOB_START + times.MARGIN * expected, abs=1)
    assert times.JOB_START < shared < alone
    assert job_minutes(experiment, TRAIN, attempt=3, longest=100) == 100


def test_a_job_has_room_for_its_weights(fake_stages: None) -> None:
    experiment = compose("imagenet256")
    weights = network_size(experiment, "score").weights / 1e6
    assert job_memory(experiment, TRAIN) == pytest.approx(1000 + 2 * weights, abs=1)
    more = [job_memory(experiment, TRAIN, 2), job_memory(experiment, TRAIN, processes=2)]
    assert more == pytest.approx([2 * (1000 + 2 * weights)] * 2, abs=1)
    assert job_memory(experiment, DATA) == 4_000


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "1 s"),
        (0.2, "1 s"),
        (99, "99 s"),
        (600, "10 min"),
        (9000, "2.5 h"),
        (1e8, "27,778 h"),
    ],
)
def test_durations_are_never_zero(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("value", "text"), [(5.0, "5 "), (1234.0, "1.23 k"), (3.1e10, "31 G"), (2e22, "20 Z")]
)
def test_metric_prefixes(value: float, text: str) -> None:
    assert metric(value) == text
