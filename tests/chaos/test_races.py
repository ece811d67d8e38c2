"""Runs and readers side by side: one works, the others wait, none fails and nothing is lost."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import cycle, islice
from random import Random
from threading import Event, Thread
from time import sleep

import pytest

from ocm_core.errors import OcmError
from ocm_core.pipeline.artifacts import differences
from ocm_core.pipeline.locks import exchanging, reading
from tests.chaos.campaign import attack, tries
from tests.chaos.checkout import Ended, Job, Server, digests, server
from tests.chaos.conftest import Finished
from tests.chaos.test_kills import make_stale

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def runners(_finished: Finished) -> Iterator[list[Server]]:
    """Three processes that start jobs, independent of each other."""
    with ExitStack() as stack:
        yield [stack.enter_context(server(_finished.place)) for _ in range(3)]


class Reader(Thread):
    """Looks at an artifact all the time, as `ocm verify` would."""

    def __init__(self, job: Job) -> None:
        super().__init__(daemon=True)
        self.job, self.enough = job, Event()
        self.looks, self.wrong = 0, list[str]()

    def run(self) -> None:
        while not self.enough.is_set():
            try:
                self.wrong += differences(self.job.name, self.job.task)
            except OcmError as error:
                self.wrong.append(str(error))
            self.looks += 1


def test_runs_and_readers_side_by_side_neither_fail_nor_lose_anything(
    finished: Finished, runners: list[Server]
) -> None:
    """Two or three runs of one job, or also of one that comes before it."""
    random, waited, looks = Random(18), 0, 0
    jobs = finished.jobs
    order = islice(cycle(random.sample(jobs, len(jobs))), tries(5, 52))
    what = (
        "two or three runs at once, of one job or of one before it, beside a reader; a failure is"
        " a run that fails, a reader that finds an artifact that is not whole, or other bytes"
    )
    with attack("races", what) as tally:
        for tally.tried, job in enumerate(order, 1):
            racing = [job, job, random.choice(jobs[: jobs.index(job) + 1])][: random.choice([2, 3])]
            ended, looked = _raced(finished, runners, racing)
            waited += sum("another run" in end.said for end in ended)
            looks += looked
        assert waited >= tally.tried // 2 and looks > tally.tried


def _raced(finished: Finished, runners: list[Server], racing: list[Job]) -> tuple[list[Ended], int]:
    """How the runs ended, and how often a reader of the first job has looked meanwhile."""
    make_stale(racing[0])
    reader = Reader(racing[0])
    reader.start()
    for runner, each in zip(runners, racing, strict=False):
        runner.start(each)
    ended = [runner.end() for runner, _ in zip(runners, racing, strict=False)]
    reader.enough.set()
    reader.join()
    said = "\n".join(f"{each}: {end.said}" for each, end in zip(racing, ended, strict=True))
    assert [end.code for end in ended] == [0] * len(ended), said
    assert not reader.wrong, f"{racing[0]}: {reader.wrong}\n{said}"
    for each in set(racing):
        finished.check(each, said)
    return ended, reader.looks


def test_of_runs_at_once_one_works_and_the_others_find_it_done(
    finished: Finished, runners: list[Server]
) -> None:
    job = next(job for job in finished.jobs if job.task.stage == "heads")
    shutil.rmtree(job.folder)
    for runner in runners:
        runner.start(job)
    said = [runner.end().said for runner in runners]
    assert sum("another run has made it in the meantime" in each for each in said) == 2
    assert sum("another run is making it; waiting" in each for each in said) == 2
    finished.check(job, "\n".join(said))


def test_a_run_that_is_killed_hands_over_to_the_one_that_waits(
    finished: Finished, runners: list[Server]
) -> None:
    """Both have begun when the first may go on: its input is held until then."""
    job = next(job for job in finished.jobs if job.task.stage == "sample")
    before = next(node for node in finished.jobs if node.task.stage == "score")
    shutil.rmtree(job.folder)
    with exchanging(before.folder):
        runners[0].start(job, die_before=finished.undisturbed[job].events * 9 // 10)
        sleep(3)
        runners[1].start(job)
        sleep(3)
    first, second = runners[0].end(), runners[1].end()
    assert (first.code, second.code) == (-9, 0), second.said
    assert "another run is making it; waiting" in second.said
    finished.check(job, second.said)


def test_what_is_read_is_not_exchanged(finished: Finished) -> None:
    """The new data wait, whole, until whoever reads the old ones has ended."""
    job = next(job for job in finished.jobs if job.task.stage == "encode")
    make_stale(job)
    before = digests(job.folder)
    with reading(job.folder):
        finished.server.start(job)
        while not (job.staging / "artifact/manifest.json").exists():
            sleep(0.01)
        sleep(2)  # its checksums are removed first, and then it waits
        assert digests(job.folder) == before
    ended = finished.server.end()
    assert "another run reads the old one; waiting" in ended.said
    finished.check(job, ended.said)
