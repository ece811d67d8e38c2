"""GPUs are handed out one job at a time, and given back however the job ends."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from ocm_core import cli
from ocm_core.launch import VISIBLE, available, seen
from ocm_core.pipeline import job as runner
from tests.pipeline.conftest import ROOT

HOLD = """
import sys
from ocm_core.errors import OcmError
from ocm_core.launch import reserve
try:
    print(reserve(int(sys.argv[1])), flush=True)
except OcmError as error:
    print(error, flush=True)
sys.stdin.read()
"""
Hold = Callable[..., tuple[str, subprocess.Popen[str]]]


@pytest.fixture
def hold(tmp_path: Path) -> Iterator[Hold]:
    """Start processes that reserve GPUs and keep them until they are ended."""
    with ExitStack() as stack:

        def start(count: int, names: str, **more: str) -> tuple[str, subprocess.Popen[str]]:
            process = subprocess.Popen(
                [sys.executable, "-c", HOLD, str(count)],
                cwd=ROOT,
                env={**os.environ, VISIBLE: names, "TMPDIR": str(tmp_path), **more},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            stack.callback(process.communicate)
            stack.callback(process.kill)
            assert process.stdout
            return process.stdout.readline().strip(), process

        yield start


def test_no_gpu_is_given_twice(hold: Hold) -> None:
    first, process = hold(1, "3,5,MIG-GPU-aa/1/0")
    second, _ = hold(2, "3,5,MIG-GPU-aa/1/0")
    assert (first, second) == ("3", "5,MIG-GPU-aa/1/0")
    assert "only 0 of 3 are free" in hold(1, "3,5,MIG-GPU-aa/1/0")[0]
    process.kill()
    process.wait()
    assert hold(1, "3,5,MIG-GPU-aa/1/0")[0] == "3"
    assert "--gpus 2: only 1 of 1 are free" in hold(2, "8")[0]


def test_allocations_do_not_get_into_each_other_s_way(hold: Hold) -> None:
    """Two jobs of a cluster may both see a GPU 0, each its own."""
    assert hold(1, "0", SLURM_JOB_ID="7")[0] == hold(1, "0", SLURM_JOB_ID="8")[0] == "0"
    assert "only 0 of 1 are free" in hold(1, "0", SLURM_JOB_ID="7")[0]


def test_gpus_are_those_of_the_cluster_s_assignment_or_of_the_driver(tmp_path: Path) -> None:
    for count in (available, seen):
        assert count({VISIBLE: "1,4"}) == ["1", "4"]
        assert count({VISIBLE: ""}) == count({VISIBLE: "-1"}) == []
    for name in ("nvidia0", "nvidia2", "nvidia10", "nvidiactl", "nvidia-uvm", "sda1"):
        (tmp_path / name).touch()
    assert seen({}, tmp_path) == ["0", "2", "10"]


@pytest.mark.parametrize(
    ("options", "visible", "device"),
    [
        ([], "3,5", "auto"),  # by hand: whatever there is
        (["--gpus", "0"], "", "cpu"),
        (["--gpus", "0", "--device", "mps"], "", "mps"),
        (["--gpus", "1"], "3", "auto"),
    ],
)
def test_what_a_job_sees(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    options: list[str],
    visible: str,
    device: str,
) -> None:
    jobs = []
    monkeypatch.setenv(VISIBLE, "3,5")
    monkeypatch.setenv("OCM_DEVICE", "auto")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(runner, "run_task", lambda *job: jobs.append((os.environ[VISIBLE], job)))
    assert cli.main(["run", "encode", "toy_mog9", "all", *options]) == 0
    assert jobs == [(visible, ("toy_mog9", "encode", "all", device, 1))]
