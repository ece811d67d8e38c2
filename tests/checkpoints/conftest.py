from dataclasses import dataclass
from pathlib import Path

import pytest

from ocm_core.checkpoints.convert import CheckpointProvenance, fetch
from ocm_core.checkpoints.registry import Checkpoint
from ocm_core.errors import OcmError
from ocm_core.io.fetch import Lock

from .files import StateDict, tiny, weights, write
from .server import Served, serve


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "*")


@dataclass
class Door:
    """A tiny published network, its weights, and the empty place that it is fetched into."""

    checkpoint: Checkpoint
    state: StateDict
    folder: Path
    lock: Lock

    @property
    def path(self) -> Path:
        return self.folder / self.checkpoint.source().file

    def place(self) -> Path:
        return write(self.checkpoint.source(), self.state, self.path)

    def body(self, legacy: bool = False) -> bytes:
        made = self.lock.path.with_name("made.pth")
        return write(self.checkpoint.source(), self.state, made, legacy).read_bytes()

    def fetch(self, **options: object) -> CheckpointProvenance:
        return fetch(self.checkpoint, self.folder, self.lock, **options)

    def refuses(self, body: bytes, match: str) -> str:
        """By download and by hand: the same message, the download removed, the user's file kept."""
        before = self.lock.path.read_bytes() if self.lock.path.exists() else None
        with serve(Served(body)) as server, pytest.raises(OcmError, match=match) as downloaded:
            self.fetch(url=server.url)
        assert list(self.folder.iterdir()) == []
        self.path.write_bytes(body)
        with pytest.raises(OcmError, match=match) as by_hand:
            self.fetch()
        assert list(self.folder.iterdir()) == [self.path]
        assert self.path.read_bytes() == body
        assert (self.lock.path.read_bytes() if self.lock.path.exists() else None) == before
        message = str(by_hand.value)
        assert message == str(downloaded.value)
        assert message.startswith(f"{self.path}: ")
        assert str(self.checkpoint.source().url) in message and f"put it at {self.path}" in message
        self.path.unlink()
        return message


@pytest.fixture
def door(request: pytest.FixtureRequest, tmp_path: Path) -> Door:
    checkpoint = tiny(getattr(request, "param", "celeba64"))
    lock = Lock(tmp_path / "checkpoints.lock.json")
    return Door(checkpoint, weights(checkpoint), tmp_path / "checkpoints" / "some", lock)
