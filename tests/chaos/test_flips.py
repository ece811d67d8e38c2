"""Flipped bits and cut files: `verify` finds them, and no resumed run ever signs them."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from itertools import cycle, islice
from pathlib import Path
from random import Random

import pytest

from ocm_core.errors import OcmError
from ocm_core.pipeline.artifacts import differences
from tests.chaos.campaign import attack, tries
from tests.chaos.checkout import Job
from tests.chaos.conftest import Finished

RESUMABLE = (
    *("encode", "score", "moments", "heads", "sample", "classifier"),
    *("selection", "distances", "likelihood"),
)


def damage(file: Path, random: Random) -> str:
    """Flip a bit, cut the end off, empty the file, or put something else in its place."""
    content = bytearray(file.read_bytes())
    kind = random.choice(["flip", "flip", "flip", "cut", "empty", "bytes"]) if content else "bytes"
    match kind:
        case "flip":
            place = random.randrange(len(content))
            content[place] ^= 1 << random.randrange(8)
        case "cut":
            del content[random.randrange(len(content)) :]
        case "empty":
            content.clear()
        case _:
            content = bytearray(b"\xff" + random.randbytes(20))
    file.write_bytes(content)
    return f"{kind} in {file}"


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
            finished.server.run(job, die_before=die_before)
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
