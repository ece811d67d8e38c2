"""Kills, flipped bits and cut files: every stage ends in the bytes of an undisturbed run."""

import shutil
import signal
from collections.abc import Iterator
from contextlib import chdir
from itertools import cycle, islice
from pathlib import Path
from random import Random

import pytest

from ocm_core.errors import OcmError
from ocm_core.pipeline.artifacts import compare, differences, read_manifest
from ocm_core.pipeline.staging import making
from ocm_core.training.state import saved_at
from tests.chaos.campaign import FULL, attack, tries
from tests.chaos.checkout import TINY, digests, make_checkout
from tests.chaos.jobs import Ended, Job, Run, processes
from tests.chaos.mutations import flip, other_file, truncate
from tests.test_io import flipped

NAMES = [*TINY] if FULL else ["digits", "toy_mog9"]
RESUMABLE = (
    *("encode", "score", "moments", "heads", "sample", "classifier"),
    *("selection", "distances", "likelihood"),
)


class Finished:
    """A checkout in which every job has run, and how long and how busy each of them was."""

    def __init__(self, place: Path, jobs: list[Job]) -> None:
        self.jobs = jobs
        self.undisturbed: dict[Job, Ended] = {}
        for job in jobs:
            ended = self.undisturbed[job] = Run(job).end()
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
        ended = Run(job).end()
        assert ended.code == 0, f"{job} {after}\n{ended.said}"
        self.check(job, f"{after}\n{ended.said}")
        return ended.said


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Finished]:
    place = tmp_path_factory.mktemp("chaos") / "checkout"
    place.mkdir()
    jobs = make_checkout(place, NAMES)
    first = processes.Process(target=int)  # which waits for all imports
    first.start()
    first.join()
    with chdir(place):
        yield Finished(place, jobs)


def test_killed_at_any_moment_every_stage_ends_in_the_same_bytes(finished: Finished) -> None:
    random, rounds, wanted = Random(15), tries(8, 104), tries(4, 100)
    spared = {job.task.stage for job in finished.jobs} if FULL else set()
    what = (
        "SIGKILL at seeded moments of every stage, `fetch_*`, evaluations and `report` included; a"
        " failure is an old artifact that is not whole, a next run that fails, or other bytes in"
        " the end"
    )
    with attack("kills", what) as tally:
        for number, job in enumerate(islice(cycle(finished.jobs), 3 * rounds)):
            if number >= rounds and tally.tried >= wanted and not spared:
                break  # a job may have ended before its time to die, where the machine is busy
            if kills := _killed_and_resumed(finished, job, random):
                tally.tried += kills
                spared.discard(job.task.stage)
        assert tally.tried >= wanted and not spared, spared


def _killed_and_resumed(finished: Finished, job: Job, random: Random) -> int:
    """How many kills came in time."""
    whole, kills = finished.undisturbed[job], 0
    anew = random.random() < 0.3
    if anew:
        shutil.rmtree(job.folder)
    else:  # one of other parameters: whole, but not what is to be made
        manifest = read_manifest(job.folder)
        key = manifest.key.model_copy(update={"parameters": "0" * 64})
        other = manifest.model_copy(update={"key": key})
        (job.folder / "manifest.json").write_text(other.text)
    moments = [
        (random.randrange(whole.events), None)
        if random.random() < 0.5
        else (None, random.random() * whole.seconds)
        for _ in range(random.choice([1, 1, 2]))
    ]
    for die_before, after in moments:
        ended = Run(job, die_before).end(after)
        assert ended.code in (0, -signal.SIGKILL), f"{job} {moments}\n{ended.said}"
        kills += ended.code == -signal.SIGKILL
        if not anew and job.folder.exists():  # else the kill fell between two renames
            manifest = read_manifest(job.folder)  # outputs are put in place first
            assert not list(compare(job.folder, manifest.model_copy(update={"outputs": {}})))
    finished.make_again(job, f"{moments}")
    return kills


@pytest.mark.parametrize("damaged", [None, "lost", "flipped"])
def test_killed_between_kept_heads_all_are_the_same(
    finished: Finished, damaged: str | None
) -> None:
    """Kept at 4, 8 and 12, with checkpoints at 3, 6, 9 and 12."""
    job = next(job for job in finished.jobs if str(job) == "tiny_digits heads/trained")
    shutil.rmtree(job.folder)
    kept, events = job.staging / "artifact/kept", finished.undisturbed[job].events
    for die_before in range(events * 2 // 5, events, events // 20):
        shutil.rmtree(job.staging, ignore_errors=True)
        Run(job, die_before).end()
        if (kept / "8").exists():
            break
    assert {folder.name for folder in kept.iterdir()} == {"4", "8"}
    file = min((kept / "4").glob("*.safetensors"))
    assert saved_at(job.staging / "state") in (6, 9)
    if damaged == "lost":
        file.unlink()
    elif damaged == "flipped":
        flipped(file, 700)
    said = finished.make_again(job)
    anew = f"{file}: lost or damaged since it was kept; training starts anew"
    assert (anew in said) == (damaged is not None), said


def test_of_runs_at_once_one_works_and_the_other_finds_it_done(finished: Finished) -> None:
    job = next(job for job in finished.jobs if job.task.stage == "heads")
    shutil.rmtree(job.folder)
    with making(job.folder):  # until both wait, however fast they start
        runs = Run(job), Run(job)
        for run in runs:
            run.wait_for("another run is making it; waiting")
    first, second = (run.end() for run in runs)
    assert (first.code, second.code) == (0, 0)
    assert min(first.events, second.events) == 0 < max(first.events, second.events)
    finished.check(job, first.said + second.said)


def damage(file: Path, random: Random) -> str:
    """Flip bits, cut the end off, empty the file, or put something else in its place."""
    before = file.read_bytes()
    while file.read_bytes() == before:
        kind = random.choice((flip, flip, truncate, other_file))
        file.write_bytes(kind(before, random))
    return f"{kind.__name__} in {file}"


def test_damage_in_a_finished_artifact_is_found_and_mended(finished: Finished) -> None:
    random = Random(16)
    what = (
        "a flipped bit, a cut or an empty file in a finished artifact; a failure is one that"
        " `ocm verify` does not find, or other bytes after the artifact was made again"
    )
    with attack("damage in artifacts", what) as tally:
        for job in islice(cycle(finished.jobs), tries(12, 150)):
            files = [file for file in sorted(job.folder.rglob("*")) if file.is_file()]
            tally.tried += 1
            done = damage(random.choice(files), random)
            assert _found(job), done
            if random.random() < 1 / 6:
                finished.make_again(job, done)
            else:
                finished.restore(job)


def _found(job: Job) -> bool:
    """Return whether `ocm verify` would say something."""
    try:
        return bool(list(differences(job.name, job.task)))
    except OcmError:
        return True


@pytest.mark.slow
def test_damage_in_what_a_killed_run_left_is_never_signed(finished: Finished) -> None:
    random, tried = Random(17), tries(9, 64)
    jobs = [job for job in finished.jobs if job.task.stage in RESUMABLE]
    what = (
        "up to two flipped, cut, emptied or replaced files, and strays, in what a killed run left;"
        " a failure is a next run that stops, or other bytes in the end"
    )
    with attack("damage in interrupted work", what) as tally:
        for number, job in enumerate(islice(cycle(jobs), tried)):
            shutil.rmtree(job.folder)
            events = finished.undisturbed[job].events
            die_before = random.randrange(events // 3, events)
            Run(job, die_before).end()
            done = list(_damages(job, random))
            tally.tried += bool(done)
            finished.make_again(job, f"{number} {die_before} {done}")
        assert tally.tried > tried // 2


def _damages(job: Job, random: Random) -> Iterator[str]:
    """In all that lies in the staging folder: pieces, their checksums, states, the key."""
    left = [file for file in sorted(job.staging.rglob("*")) if file.is_file()]
    for file in random.sample(left, min(len(left), 2)):
        yield damage(file, random)
    if left and random.random() < 0.3:
        stray = random.choice(left).with_name("stray")
        stray.write_bytes(b"of another origin")
        yield f"{stray}"
