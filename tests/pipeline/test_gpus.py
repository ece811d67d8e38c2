"""GPUs are handed out one job at a time, and given back however the job ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from ocm_core.pipeline.gpus import VISIBLE, available

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
    assert available({VISIBLE: "1,4"}) == ["1", "4"]
