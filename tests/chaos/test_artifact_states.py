"""Any order of making, interrupting, resuming and damaging an artifact keeps the promises."""

import shutil
import tempfile
from pathlib import Path
from random import Random
from typing import ClassVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ocm_core.errors import OcmError
from ocm_core.io.checksums import is_intact, record_checksum
from ocm_core.io.state_file import load_state, save_state
from ocm_core.pipeline.artifacts import Key, checked_folder, manifest_of
from ocm_core.pipeline.stage import Task
from ocm_core.pipeline.staging import StagingFolder
from tests.chaos.campaign import attack, tries
from tests.chaos.mutations import of_json
from tests.test_io import flipped

TASK = Task("sample", "all")
PAGE = "reports/toy.html"
PIECES = 4
SIGNING, EXCHANGING, PUTTING, END = range(PIECES, PIECES + 4)  # moments after the last piece
PLACES = st.integers(0, 1_000_000)


class KilledError(Exception):
    """Stands for the end of the process: nothing after it is done."""


class ArtifactMachine(RuleBasedStateMachine):
    """A job of two kinds that writes finished pieces, keeps a state, and leaves a page outside."""

    runs: ClassVar[int] = 0
    damages: ClassVar[int] = 0

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        self.checkout = Path(tempfile.mkdtemp())
        self.patch.chdir(self.checkout)
        self.whole: str | None = None  # what the artifact must be, unless an exchange was cut short

    @rule(made=st.sampled_from(["a", "b"]), stop=st.integers(0, END))
    def run_until(self, made: str, stop: int) -> None:
        work = StagingFolder("toy", TASK, Key(parameters=made, sources=""))
        type(self).runs += 1
        try:
            if work.prepare():
                self._work(work, made, stop)
            self.whole = made
        except KilledError:
            if stop == PUTTING:  # the page is the new one, the artifact still the old one
                self.whole = None

    def _work(self, work: StagingFolder, made: str, stop: int) -> None:
        state = work.state / "state.safetensors"
        begun = load_state(state)
        assert begun is None or begun.facts["made"] == made
        for number in range(PIECES):
            piece = work.artifact / f"{number}"
            if number == stop:
                piece.write_text("half")
                raise KilledError
            if not is_intact(piece):
                piece.write_text(f"{number} of {made}")
                record_checksum(piece)
            save_state(state, {}, {"made": made, "done": number})
        page = work.outputs / PAGE
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(f"page of {made}")
        if stop == SIGNING:
            raise KilledError
        fatal = {EXCHANGING: (StagingFolder, "_put_in_place"), PUTTING: (Path, "rename")}
        with pytest.MonkeyPatch.context() as patch:
            if stop in fatal:
                patch.setattr(*fatal[stop], _killed)
            work.finish({}, {})

    @rule(file=PLACES, bit=PLACES)
    def damage_what_a_run_left(self, file: int, bit: int) -> None:
        """No promise is broken by it: the next run finds out."""
        if root := next(self.checkout.rglob(".all.staging"), None):
            _flip(root, file, bit)

    @rule()
    def leave_a_stray(self) -> None:
        if root := next(self.checkout.rglob(".all.staging/artifact"), None):
            (root / "stray").write_text("of another origin")

    @precondition(lambda self: self.whole is not None)
    @rule(file=PLACES, bit=PLACES)
    def damage_the_artifact(self, file: int, bit: int) -> None:
        """It is refused, by whoever reads it or would record it."""
        folder = checked_folder("toy", TASK)
        _flip(folder, file, bit)
        self.whole = None
        with pytest.raises(OcmError, match=r"changed|damaged"):
            checked_folder("toy", TASK)

    @precondition(lambda self: self.whole is not None)
    @rule(seed=PLACES)
    def damage_the_manifest(self, seed: int) -> None:
        """Whatever it says then, the next run that makes something puts it in place."""
        manifest = manifest_of("toy", TASK)
        manifest.write_bytes(of_json(manifest.read_bytes(), Random(seed)))
        self.whole = None
        type(self).damages += 1

    @invariant()
    def the_artifact_is_what_was_made_last(self) -> None:
        if self.whole is None:
            return
        folder = checked_folder("toy", TASK)
        found = {f.name: f.read_text() for f in folder.iterdir() if f.name != "manifest.json"}
        assert found == {f"{number}": f"{number} of {self.whole}" for number in range(PIECES)}
        assert Path(PAGE).read_text() == f"page of {self.whole}"

    def teardown(self) -> None:
        self.patch.undo()
        shutil.rmtree(self.checkout)


def _killed(*_: object) -> None:
    raise KilledError


def _flip(folder: Path, file: int, bit: int) -> None:
    files = [f for f in sorted(folder.rglob("*")) if f.is_file() and f.stat().st_size]
    if files:
        chosen = files[file % len(files)]
        flipped(chosen, bit // 8 % chosen.stat().st_size, 1 << bit % 8)
        ArtifactMachine.damages += 1


def test_any_order_of_events_keeps_the_promises() -> None:
    runner = ArtifactMachine.TestCase()
    runner.settings = settings(
        max_examples=tries(20, 150), stateful_step_count=20, deadline=None, derandomize=True
    )
    what = (
        "runs of two kinds, stopped at any step, flipped bits in what is whole and in what is left,"
        " damaged manifests, strays, in any order; a failure is damage that is signed, not found,"
        " or in the way"
    )
    with attack("orders of events", what) as tally:
        try:
            runner.runTest()
        finally:
            tally.tried = ArtifactMachine.runs + ArtifactMachine.damages
        assert ArtifactMachine.runs and ArtifactMachine.damages
