"""Tiny experiments, finished once and undisturbed: what every attack has to come back to."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos.campaign import FULL
from tests.chaos.checkout import TINY, Ended, Job, Server, digests, make_checkout, server

NAMES = [*TINY] if FULL else ["digits", "toy_mog9"]


class Finished:
    """A checkout in which every job has run, and how long and how busy each of them was."""

    def __init__(self, place: Path, jobs: list[Job], served: Server) -> None:
        self.place, self.jobs, self.server = place, jobs, served
        self.undisturbed: dict[Job, Ended] = {}
        for job in jobs:
            ended = self.undisturbed[job] = served.run(job)
            assert ended.code == 0, ended.said
        self.expected = {job: digests(job.folder) for job in jobs}
        self._kept = place.with_name(f"{place.name}-kept")
        shutil.copytree("artifacts", self._kept)

    def restore(self, job: Job) -> None:
        """The artifact as it was made first."""
        for folder in (job.folder, job.staging):
            shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(self._kept / job.folder.relative_to("artifacts"), job.folder)

    def check(self, job: Job, said: str) -> None:
        """Check that the artifact is what it was, and that nothing is left beside it."""
        assert digests(job.folder) == self.expected[job], f"{job}\n{said}"
        assert not job.staging.exists(), f"{job}\n{said}"

    def make_again(self, job: Job, after: str = "") -> str:
        """Run a job after something was done to it; what it said, if the end is the same bytes."""
        ended = self.server.run(job)
        assert ended.code == 0, f"{job} {after}\n{ended.said}"
        self.check(job, f"{after}\n{ended.said}")
        return ended.said


@pytest.fixture(scope="session")
def _finished(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Finished]:
    place = tmp_path_factory.mktemp("chaos") / "checkout"
    place.mkdir()
    jobs = make_checkout(place, NAMES)
    with server(place) as served:
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(place)
            made = Finished(place, jobs, served)
        yield made


@pytest.fixture
def finished(_finished: Finished, monkeypatch: pytest.MonkeyPatch) -> Finished:
    monkeypatch.chdir(_finished.place)
    return _finished
