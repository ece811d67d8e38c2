"""Processes on several nodes go on from the state that the first one sees."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from threading import Timer
from typing import TypeVar

import pytest

from ocm_core.distributed import Rank
from ocm_core.errors import OcmError
from ocm_core.io.checksums import sha256_of
from ocm_core.pipeline.wait_for_nfs import await_first

Decision = TypeVar("Decision")


class SecondOfTwo(Rank):
    """The second of two processes; the first one has decided already."""

    def __init__(self, decision: object) -> None:
        super().__init__(index=1, world_size=2)
        object.__setattr__(self, "decision", decision)

    def agreed(self, decide: Callable[[], Decision]) -> Decision:
        return self.decision


def test_an_old_view_of_the_disk_is_waited_for(tmp_path: Path) -> None:
    new, state = tmp_path / "new", tmp_path / "state/training.safetensors"
    state.parent.mkdir()
    new.write_text("iteration 80")
    state.write_text("iteration 70")
    second = SecondOfTwo({state.name: sha256_of(new)})
    Timer(0.3, lambda: new.rename(state)).start()
    await_first(second, state.parent, patience=20.0)
    assert state.read_text() == "iteration 80"


@pytest.mark.parametrize("decision", [{}, {"training.safetensors": "0" * 64}])
def test_a_disk_that_is_not_shared_is_refused(tmp_path: Path, decision: dict[str, str]) -> None:
    (tmp_path / "training.safetensors").write_text("iteration 70")
    with pytest.raises(OcmError, match=r"other files than the first process sees, even after 0 s"):
        await_first(SecondOfTwo(decision), tmp_path, patience=0.2)


def test_nothing_was_left(tmp_path: Path) -> None:
    await_first(SecondOfTwo({}), tmp_path / "state", patience=0.2)
    await_first(Rank(), tmp_path / "state", patience=0.2)
