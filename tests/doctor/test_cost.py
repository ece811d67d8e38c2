"""Operations are counted on the networks; one measured pace gives the times and the requests."""

from __future__ import annotations

from pathlib import Path

import pytest

from ocm_core.doctor import cost
from ocm_core.doctor.cost import (
    ASSUMED,
    INCEPTION_OPERATIONS,
    START,
    duration,
    expected_time,
    job_memory,
    job_minutes,
    measure,
    metric,
    network_size,
    pace_of,
)
from ocm_core.params.compose import compose
from ocm_core.pipeline.graph import Graph
from ocm_core.pipeline.stage import Task

DIGITS = compose("digits")
DATA, ENCODE, TRAIN, BLUR = map(Task, ("fetch_data", "encode", "train", "blur"))
GIGA = {"cifar10_ls": 16.766, "celeba64": 48.101, "imagenet64": 79.473, "imagenet256": 237.243}


@pytest.mark.parametrize("name", GIGA)
def test_a_pass_of_the_published_networks(name: str) -> None:
    """As many as torch's formulas give for the published code."""
    size = measure(compose(name), "score")
    assert size.operations == pytest.approx(1e9 * GIGA[name], rel=1e-4)
    assert size.activations > 0


def test_a_linear_network_takes_two_operations_a_weight() -> None:
    size = measure(compose("toy_mog9"), "score")
    assert 0.5 <= size.operations / (2 * size.weights / 4) <= 1.01  # biases are added, not counted


def test_features_of_latents_are_those_of_decoded_images() -> None:
    latents, pixels = compose("imagenet256"), compose("celeba64")
    decoding = measure(latents, "vae").operations
    assert measure(latents, "features").operations == decoding + INCEPTION_OPERATIONS
    assert measure(pixels, "features").operations == INCEPTION_OPERATIONS
    assert measure(pixels, "vae").operations == 0


@pytest.mark.parametrize(("name", "least"), [("digits", 1e5), ("cifar10_small", 1e5)])
def test_feature_spaces_without_a_download_are_counted(name: str, least: float) -> None:
    assert measure(compose(name), "features").operations > least
    assert measure(compose("toy_mog9"), "features").operations == 0  # points have none


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
    monkeypatch.setattr(cost, "SECONDS", 0.05)
    for name in ("digits", "toy_mog9"):
        assert 1e6 < pace_of(compose(name)).rate < 1e13


def test_a_network_larger_than_the_memory_is_not_timed(timings: list[str], monkeypatch) -> None:
    monkeypatch.setattr(cost, "host_memory", lambda: 1_000_000)
    assert not pace_of(DIGITS).measured and timings == []


def test_the_longest_path_or_the_sum_over_the_workers(fake_stages: None) -> None:
    graph = Graph(DIGITS)
    todo = [(graph, task) for task in (DATA, ENCODE, TRAIN, BLUR)]
    taken = dict(zip(todo, (1.0, 2.0, 60.0, 40.0), strict=True))
    assert cost.wall_seconds(todo, taken, workers=8) == 63
    assert cost.wall_seconds(todo, taken, workers=1) == 103


def test_a_run_says_how_long_it_takes(fake_stages: None, timings: list[str]) -> None:
    graph = Graph(DIGITS)
    work = 3e6 * network_size(DIGITS, "score").operations / 1e9
    text = expected_time([(graph, DATA), (graph, TRAIN)], cores=2)
    pace = "1 GFLOP/s on cpu, measured on its score network"
    assert text == f"2 jobs, about {duration(2 * START + work)} ({pace})"


def test_a_job_asks_for_more_in_every_attempt(fake_stages: None, timings: list[str]) -> None:
    first, second = (job_minutes(DIGITS, TRAIN, attempt) for attempt in (1, 2))
    assert cost.JOB_START < first < second
    experiment = compose("imagenet256")
    alone, shared = (job_minutes(experiment, TRAIN, gpus=gpus) for gpus in (1, 8))
    expected = 3e6 * network_size(experiment, "score").operations / ASSUMED["cuda"] / 60
    assert alone == pytest.approx(cost.JOB_START + cost.MARGIN * expected, abs=1)
    assert cost.JOB_START < shared < alone
    assert job_minutes(experiment, TRAIN, attempt=3, longest=100) == 100


def test_a_job_has_room_for_its_weights(fake_stages: None) -> None:
    experiment = compose("imagenet256")
    each = 16_000 + 2 * network_size(experiment, "score").weights / 1e6
    assert job_memory(experiment, TRAIN) == pytest.approx(each, abs=1)
    assert job_memory(experiment, TRAIN, attempt=2) == pytest.approx(2 * each, abs=1)
    assert job_memory(experiment, DATA) == 4_000


def test_numbers_for_people() -> None:
    durations = {0.0: "1 s", 0.2: "1 s", 99: "99 s", 600: "10 min", 9000: "2.5 h", 1e8: "27,778 h"}
    assert {seconds: duration(seconds) for seconds in durations} == durations
    prefixed = {0: "0 ", 5.0: "5 ", 1000: "1 k", 1234.0: "1.23 k", 3.1e10: "31 G", 2e22: "20 Z"}
    assert {value: metric(value) for value in prefixed} == prefixed
