"""File systems without locks, and clusters that say what their nodes have."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path
from typing import Never

import pytest

from ocm_core.errors import OcmError
from ocm_core.pipeline import gpus
from ocm_core.pipeline.locks import exchanging, making, reading


@pytest.mark.parametrize("held", [making, reading, exchanging])
def test_a_file_system_without_locks_is_named_before_work(
    held, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> Never:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with (
        pytest.raises(OcmError, match=r"toy/\.locks: this file system has no locks \(No locks"),
        held(tmp_path / "toy/heads/learned"),
    ):
        pass


@pytest.mark.parametrize(
    ("said", "most"),
    [
        ("gpu:4\n", 4),
        ("gpu:a100:8(S:0-1)\ngpu:v100:2\n", 8),
        ("gpu:a100:4,gpu:v100:2,shard:16\n(null)\n", 6),
        ("(null)\n", 0),
    ],
)
def test_the_gpus_of_a_node_are_what_slurm_says(
    said: str, most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = tmp_path / "sinfo"
    tool.write_text(f"#!/bin/sh\ncat <<E\n{said}E\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    assert gpus.of_a_node() == most
    tool.write_text("#!/bin/sh\nexit 1\n")
    assert gpus.of_a_node() is None
