"""GPUs are handed out one job at a time, and given back however the job ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ocm_core import cli
from ocm_core.errors import OcmError
from ocm_core.pipeline import gpus
from ocm_core.pipeline import run as runner
from ocm_core.pipeline.gpus import VISIBLE, available, lock_names, reserve, seen

ROOT = Path(__file__).resolve().parents[2]
HOLD = """
import sys
from pathlib import Path
from ocm_core.errors import OcmError
from ocm_core.pipeline.gpus import reserve
try:
    print(reserve(int(sys.argv[1]), Path(sys.argv[2])), flush=True)
except OcmError as error:
    print(error, flush=True)
sys.stdin.read()
"""


class Holder:
    """A process that reserves GPUs and keeps them until it is ended."""

    def __init__(self, folder: Path, count: int, names: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", HOLD, str(count), str(folder)],
            cwd=ROOT,
            env={**os.environ, VISIBLE: names},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout
        self.said = self.process.stdout.readline().strip()

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.communicate()


def test_no_gpu_is_given_twice(tmp_path: Path) -> None:
    first = Holder(tmp_path, 1, "3,5,7")
    second = Holder(tmp_path, 2, "3,5,7")
    third = Holder(tmp_path, 1, "3,5,7")
    assert (first.said, second.said) == ("3", "5,7")
    assert "only 0 of 3 are free" in third.said
    first.kill()
    fourth = Holder(tmp_path, 1, "3,5,7")
    assert fourth.said == "3"
    for holder in (second, third, fourth):
        holder.kill()


def test_more_than_there_are(tmp_path: Path) -> None:
    asking = Holder(tmp_path, 2, "0")
    assert "--gpus 2: this machine offers 1" in asking.said
    asking.kill()


def test_a_cluster_s_assignment_is_kept_to() -> None:
    for count in (available, seen):
        assert count({VISIBLE: "1,4"}) == ["1", "4"]
        assert count({VISIBLE: ""}) == count({VISIBLE: "-1"}) == []


def test_without_torch_the_driver_s_files_are_counted(tmp_path: Path) -> None:
    for name in ("nvidia0", "nvidia2", "nvidia10", "nvidiactl", "nvidia-uvm", "sda1"):
        (tmp_path / name).touch()
    assert seen({}, tmp_path) == ["0", "2", "10"]


def test_allocations_do_not_get_into_each_other_s_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two jobs of a cluster may both see a GPU 0, each its own."""
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    first = Holder(tmp_path, 1, "0")
    again = Holder(tmp_path, 1, "0")
    monkeypatch.setenv("SLURM_JOB_ID", "8")
    second = Holder(tmp_path, 1, "0")
    assert (first.said, second.said) == ("0", "0")
    assert "only 0 of 1 are free" in again.said
    for holder in (first, again, second):
        holder.kill()


def test_a_lock_is_the_device_s_whatever_it_is_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\necho '0, GPU-aa'\necho '1, GPU-bb'\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    found = lock_names(["1", "GPU-bb", "GPU-aa", "MIG-GPU-aa/1/0"], {})
    assert found["1"] == found["GPU-bb"] != found["GPU-aa"]
    assert "/" not in found["MIG-GPU-aa/1/0"]


def test_locks_are_nobody_else_s(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VISIBLE, "0")
    (tmp_path / "there").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to("there")
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    for name in ("link", "open"):
        with pytest.raises(OcmError, match="a folder of your own"):
            reserve(1, tmp_path / name)


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
