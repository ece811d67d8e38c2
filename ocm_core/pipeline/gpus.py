"""Which GPUs a job may use. Snakemake counts them and does not say which: a lock per GPU does.

The locks belong to the user on this machine, so that jobs of several checkouts share them too; the
system frees them when the job ends, however it ends. Inside an allocation of a cluster nobody else
has its GPUs, and their numbers mean nothing outside of it: there a lock is the allocation's own.
"""

from __future__ import annotations

import fcntl
import os
import re
import socket
import stat
import subprocess
import tempfile
from collections.abc import Mapping
from itertools import takewhile
from pathlib import Path
from urllib.parse import quote

from ocm_core.errors import OcmError
from ocm_core.pipeline.stage import Stage
from ocm_core.schema.block import Params

VISIBLE = "CUDA_VISIBLE_DEVICES"
# What SLURM, PBS, LSF and Grid Engine call the job that they have given GPUs to.
ALLOCATIONS = ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "JOB_ID")


def check_gpus(stage: Stage[Params], count: int, nodes: int, there: int | None) -> None:
    """Whether a rule may have so many, where that is said on the command line."""
    said = f"--set-resources {stage.name}:gpu={count}"
    check_there(said, count, there)
    if count > 1 and not stage.shared:
        raise OcmError(f"{said}: this stage is done by one process; give it one")
    if count % nodes:
        raise OcmError(f"{said} {stage.name}:nodes={nodes}: each node has to get as many")


def check_there(said: str, count: int, there: int | None) -> None:
    """None where nobody can tell how many there are."""
    if there is not None and count > there:
        raise OcmError(f"{said}: there are {there}; with more, say so by --resources gpu={count}")


def of_a_node() -> int | None:
    """The most GPUs that a node of this SLURM has; None where none answers."""
    command = ["sinfo", "--noheader", "--format=%G"]
    try:
        said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    except (OSError, subprocess.SubprocessError):
        return None
    counts = (re.findall(r"\bgpu(?::[^:(),]+)?:(\d+)", node) for node in said.stdout.splitlines())
    return max((sum(map(int, found)) for found in counts), default=0)


def reserve(count: int, folder: Path | None = None) -> str:
    """Take `count` free GPUs for the rest of this process, and of whatever replaces it by exec.

    Returns the value of CUDA_VISIBLE_DEVICES that shows the process these and no others.
    """
    if not count:
        return ""
    names = available(os.environ)
    if count > len(names):
        raise OcmError(
            f"--gpus {count}: this machine offers {len(names)}; give the rule fewer "
            "(--set-resources RULE:gpu=...), or run it elsewhere"
        )
    place = _own(folder or Path(tempfile.gettempdir()) / f"ocm-gpus-{os.getuid()}")
    keys = lock_names(names, os.environ)
    taken: list[str] = []
    for name in names:
        if len(taken) < count and _lock(place / keys[name]):
            taken.append(name)
    if len(taken) < count:
        raise OcmError(
            f"--gpus {count}: only {len(taken)} of {len(names)} are free; tell Snakemake how many "
            f"there are (--resources gpu={len(names)}), and it will wait"
        )
    return ",".join(taken)


def available(environment: Mapping[str, str]) -> list[str]:
    """Those that a cluster has assigned to this job, or all of the machine."""
    if VISIBLE in environment:  # which ends, for CUDA, at the first name that is none
        return list(takewhile(lambda name: name not in ("", "-1"), environment[VISIBLE].split(",")))
    import torch

    return [str(index) for index in range(torch.cuda.device_count())]


def seen(environment: Mapping[str, str], devices: Path = Path("/dev")) -> list[str]:
    """The same for building the graph, which does not wait for torch: by the driver's own files."""
    if VISIBLE in environment:
        return available(environment)
    names = (file.name.removeprefix("nvidia") for file in devices.glob("nvidia[0-9]*"))
    return sorted(names, key=int)


def lock_names(names: list[str], environment: Mapping[str, str]) -> dict[str, str]:
    """A file name for each: temporary folders may be shared by nodes, MIG names have slashes."""
    jobs = [f"{key}={environment[key]}" for key in ALLOCATIONS if environment.get(key)]
    known = {} if jobs else _uuids()
    scope = "-".join([*jobs[:1], socket.gethostname()])
    return {name: quote(f"{scope}-{known.get(name, name)}", safe="") for name in names}


def _uuids() -> dict[str, str]:
    """By number; of the driver's tool, because asking CUDA would settle what this process sees."""
    command = ["nvidia-smi", "--query-gpu=index,uuid", "--format=csv,noheader"]
    try:
        said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    except (OSError, subprocess.SubprocessError):
        return {}
    pairs = (line.split(", ", 1) for line in said.stdout.splitlines() if ", " in line)
    return {index.strip(): uuid.strip() for index, uuid in pairs}


def _own(folder: Path) -> Path:
    """The folder of the locks, if it is the user's own: others may write to its parent."""
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise OcmError(
            f"{folder}: expected a folder of your own that nobody else writes to, for the locks of "
            "GPUs; remove it, or set TMPDIR to a folder of yours"
        )
    return folder


def _lock(file: Path) -> bool:
    descriptor = os.open(file, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return False
    os.set_inheritable(descriptor, True)  # kept open on purpose, to the end of the process
    return True
