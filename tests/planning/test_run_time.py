"""How long a run takes here, by what its tasks took before."""

from __future__ import annotations

from pathlib import Path

import pytest

from ocm_core.params.resolved import load
from ocm_core.pipeline.table import Task, tasks
from ocm_core.planning import cpu_times, diagnosis
from ocm_core.planning.cpu_times import ImageTimes
from ocm_core.planning.run_time import Todo, duration, expectation, wall_seconds

DIGITS = load("digits")
SCORE, MOMENTS, HEADS = (Task(stage, "learned") for stage in ("score", "moments", "heads"))
CLASSIFIER = Task("classifier", "all")


@pytest.fixture
def logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(diagnosis, "LOGS", tmp_path)
    return tmp_path


def measured(logs: Path, task: Task, seconds: float) -> None:
    file = logs / "digits" / task.stage / f"{task.part}.benchmark.tsv"
    file.parent.mkdir(parents=True)
    file.write_text(f"s\th:m:s\n{seconds}\t-\n")


def todo(*chosen: Task) -> Todo:
    return [(DIGITS, task) for task in tasks(DIGITS) if task in chosen]


def test_the_longest_chain_or_the_sum_over_the_cores() -> None:
    taken = {("digits", SCORE): 60.0, ("digits", HEADS): 30.0, ("digits", CLASSIFIER): 40.0}
    chosen = todo(SCORE, HEADS, CLASSIFIER)
    assert wall_seconds(chosen, taken, cores=8) == 90
    assert wall_seconds(chosen, taken, cores=1) == 130


def test_what_ran_before_is_expected_again(logs: Path) -> None:
    measured(logs, SCORE, 300.0)
    measured(logs, MOMENTS, 60.0)
    said = expectation(todo(SCORE, MOMENTS), cores=2)
    assert said == "2 jobs, about 6 min here, by what they took before"


def test_what_never_ran_here_is_expected_by_times_from_elsewhere(
    logs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A first run of the default has an estimate, and the few tasks without one are counted."""
    times = ImageTimes(
        score_step=1.0, heads_step=2.0, evaluation=0.5, sampling=0.5, product=0.5, features=0.5
    )
    monkeypatch.setattr(cpu_times, "MEASURED", {"digits": times})
    measured(logs, MOMENTS, 60.0)
    score, heads = DIGITS.train.score, DIGITS.train.heads
    assert score is not None
    seconds = (score.iterations * score.batch_size + 2 * heads.iterations * heads.batch_size) / 1e3
    said = expectation(todo(SCORE, MOMENTS, HEADS, CLASSIFIER), cores=2)
    assert said == (
        f"4 jobs, about {duration(60 + seconds)} and 1 job of unknown length: 3 have not run here"
        " yet, and are counted by times measured on another machine"
    )


def test_nothing_is_made_up_of_what_was_never_measured(
    logs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpu_times, "MEASURED", {})
    assert expectation(todo(SCORE, HEADS), 2) == "2 jobs, none of which has run here yet"


def test_the_cost_model_knows_the_published_networks(
    logs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    computed = {"A100 80 GB": 4049.4}
    monkeypatch.setattr("ocm_core.planning.run_time.gpu_hours", lambda name: computed)
    imagenet = load("imagenet256")
    said = expectation([(imagenet, task) for task in tasks(imagenet)], cores=2)
    assert said.endswith("; all of imagenet256 by `ocm cost`: 4,049 h on A100 80 GB")


@pytest.mark.parametrize(
    ("seconds", "said"), [(0.2, "1 s"), (99, "99 s"), (600, "10 min"), (9000, "2.5 h")]
)
def test_durations(seconds: float, said: str) -> None:
    assert duration(seconds) == said


@pytest.mark.parametrize("left", [b"", b"s\n", b"s\th:m:s\n\t-\n", b"h:m:s\n1\n", b"\xff\xfe"])
def test_a_note_of_a_time_that_a_kill_has_cut_is_none(logs: Path, left: bytes) -> None:
    measured(logs, SCORE, 300.0)
    (logs / "digits/score/learned.benchmark.tsv").write_bytes(left)
    assert diagnosis.earlier_seconds("digits", SCORE) is None
