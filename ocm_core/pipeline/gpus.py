"""Which GPUs a job may use. Snakemake counts them and does not say which: a lock per GPU does.

The locks belong to the user on this machine, so that jobs of several checkouts share them; the
system frees them when the job ends. In a job of SLURM, whose GPUs nobody else has and which have
numbers of their own, they are that job's.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Mapping
from itertools import takewhile
from pathlib import Path

from ocm_core.errors import OcmError

VISIBLE, ALLOCATION = "CUDA_VISIBLE_DEVICES", "SLURM_JOB_ID"


def reserve(count: int) -> str:
    """Take `count` free GPUs for the rest of this process, and of whatever replaces it by exec.

    Returns the value of CUDA_VISIBLE_DEVICES that shows the process these and no others.
    """
    if not count:
        return ""
    names, taken = available(os.environ), list[str]()
    place = Path(tempfile.gettempdir(), f"ocm-gpus-{os.getuid()}", os.environ.get(ALLOCATION, ""))
    place.mkdir(parents=True, exist_ok=True, mode=0o700)
    for name in names:
        if len(taken) < count and _lock(place / f"{name.replace('/', '-')}.lock"):
            taken.append(name)
    if len(taken) < count:
        raise OcmError(
            f"--gpus {count}: only {len(taken)} of {len(names)} are free here; tell Snakemake how "
            f"many there are (--resources gpu={len(names)}), and it will wait, or give the rule "
            "fewer (--set-resources RULE:gpu=...)"
        )
    return ",".join(taken)


def available(environment: Mapping[str, str]) -> list[str]:
    """Return those that a cluster has assigned to this job, or all of the machine."""
    if VISIBLE in environment:  # which ends, for CUDA, at the first name that is none
        return list(takewhile(lambda name: name not in ("", "-1"), environment[VISIBLE].split(",")))
    import torch

    return [str(index) for index in range(torch.cuda.device_count())]


def seen(environment: Mapping[str, str], devices: Path = Path("/dev")) -> list[str]:
    """Return the same without asking CUDA: by the driver's own files."""
    if VISIBLE in environment:
        return available(environment)
    names = (file.name.removeprefix("nvidia") for file in devices.glob("nvidia[0-9]*"))
    return sorted(names, key=int)


def _lock(file: Path) -> bool:
    descriptor = os.open(file, os.O_CREAT | os.O_RDWR, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return False
    os.set_inheritable(descriptor, True)  # kept open on purpose, to the end of the process
    return True
