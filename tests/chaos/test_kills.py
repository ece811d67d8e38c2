"""SIGKILL at seeded moments of every stage: the old artifact stays, the end is the same bytes."""

from __future__ import annotations

import shutil
import signal
from itertools import cycle, islice
from random import Random
from time import sleep

import pytest

from ocm_core.pipeline.artifacts import compare, read_manifest
from ocm_core.training.state import saved_at
from tests.chaos.campaign import FULL, attack, tries
from tests.chaos.checkout import Job, server
from tests.chaos.conftest import Finished
from tests.test_resuming import flipped


def test_killed_at_any_moment_every_stage_ends_in_the_same_bytes(finished: Finished) -> None:
    """Half of the kills fall before a change on the disk, the others after a time."""
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
        {"die_before": random.randrange(whole.events)}
        if random.random() < 0.5
        else {"after": random.random() * whole.seconds}
        for _ in range(random.choice([1, 1, 2]))
    ]
    for moment in moments:
        ended = finished.server.run(job, **moment)
        assert ended.code in (0, -signal.SIGKILL), f"{job} {moment}\n{ended.said}"
        kills += ended.code == -signal.SIGKILL
        if not anew and job.folder.exists():  # else the kill fell between two renames
            manifest = read_manifest(job.folder)  # outputs are put in place first
            assert not list(compare(job.folder, manifest.model_copy(update={"outputs": {}})))
    finished.make_again(job, f"{moments}")
    return kills


@pytest.mark.parametrize("damaged", [None, "lost", "flipped"])
def test_killed_between_kept_heads_all_of_them_end_in_the_same_bytes(
    finished: Finished, damaged: str | None
) -> None:
    """Kept at 4, 8 and 12, with checkpoints at 3, 6, 9 and 12."""
    job = next(job for job in finished.jobs if str(job) == "tiny_digits heads/trained")
    shutil.rmtree(job.folder)
    finished.server.run(job, die_before=finished.undisturbed[job].events * 3 // 5)
    kept = job.staging / "artifact/kept"
    assert {file.name for file in kept.glob("*.safetensors")} == {"4.safetensors", "8.safetensors"}
    assert saved_at(job.staging / "state") in (6, 9)
    if damaged == "lost":
        (kept / "4.safetensors").unlink()
    elif damaged == "flipped":
        flipped(kept / "4.safetensors", 700)
    said = finished.make_again(job)
    anew = f"{kept / '4.safetensors'}: lost or damaged since it was kept; training starts anew"
    assert (anew in said) == (damaged is not None), said


def test_of_runs_at_once_one_works_and_the_other_finds_it_done(finished: Finished) -> None:
    job = next(job for job in finished.jobs if job.task.stage == "heads")
    shutil.rmtree(job.folder)
    with server(finished.place) as other:
        finished.server.start(job)
        sleep(0.2)
        other.start(job)
        first, second = finished.server.end(), other.end()
    assert (first.code, second.code) == (0, 0)
    assert sum("another run is making it; waiting" in end.said for end in (first, second)) == 1
    finished.check(job, first.said + second.said)
