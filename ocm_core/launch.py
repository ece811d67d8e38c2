"""GPUs and processes of one job.

Snakemake counts GPUs and does not say which: a lock per GPU does, which the system frees when the
job ends. The locks are the user's on this machine, so that checkouts share them; in SLURM, where
each job numbers its own GPUs, they are the job's. For several processes `torchrun` takes this one's
place; on several nodes SLURM starts one on each, and they meet at the node that this runs on.
"""

from __future__ import annotations

import fcntl
import os
import socket
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING

from ocm_core.errors import OcmError
from ocm_core.io.checksums import sha256_of

if TYPE_CHECKING:
    from ocm_core.distributed import Rank

VISIBLE, ALLOCATION = "CUDA_VISIBLE_DEVICES", "SLURM_JOB_ID"
# Of the allocation itself; the rest is about the step that this process is in, and no other's.
_KEPT = (ALLOCATION, "SLURM_JOBID", "SLURM_CONF", "SLURM_CLUSTER_NAME")
_TORCHRUN = [sys.executable, "-m", "torch.distributed.run"]
_OCM = ["-m", "--", "ocm_core.cli"]  # torchrun reads behind the module's name too, without the `--`


def reserve(count: int) -> str:
    """Lock free GPUs to the end of this process, and return the CUDA_VISIBLE_DEVICES of these."""
    if not count:
        return ""
    names, taken = available(os.environ), list[str]()
    place = Path(tempfile.gettempdir(), f"ocm-gpus-{os.getuid()}", os.environ.get(ALLOCATION, ""))
    place.mkdir(parents=True, exist_ok=True, mode=0o700)
    for name in names:
        file = os.open(place / f"{name.replace('/', '-')}.lock", os.O_CREAT | os.O_RDWR, 0o600)
        with suppress(BlockingIOError):
            if len(taken) < count:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.set_inheritable(file, True)  # kept open on purpose, to the end of the process
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


def on_this_node(processes: int, arguments: Sequence[str]) -> None:
    """Become that many processes of `ocm` with these arguments."""
    alone = ("--standalone", f"--nproc-per-node={processes}")
    _become([*_TORCHRUN, *alone, *_OCM, *arguments], {**os.environ})


def on_nodes(nodes: int, gpus: int, arguments: Sequence[str]) -> None:
    """Become one process per GPU, as many of them on each node of the allocation."""
    if gpus % nodes:
        raise OcmError(f"--gpus {gpus} --nodes {nodes}: each node has to get as many as any other")
    if ALLOCATION not in os.environ:
        raise OcmError(
            f"--nodes {nodes}: this is no job of SLURM; `snakemake --profile profiles/slurm` makes "
            "one (docs/cluster.md), and on one machine --gpus alone will do"
        )
    with socket.socket() as probe:
        probe.bind(("", 0))
        port = probe.getsockname()[1]
    each = gpus // nodes
    command = [
        *("srun", f"--nodes={nodes}", f"--ntasks={nodes}", "--ntasks-per-node=1"),
        *(f"--gpus-per-node={each}", "--cpu-bind=none", "--overlap", "--kill-on-bad-exit=1"),
        *(*_TORCHRUN, f"--nnodes={nodes}", f"--nproc-per-node={max(1, each)}"),
        *("--rdzv-backend=c10d", f"--rdzv-endpoint={socket.gethostname()}:{port}"),
        *(f"--rdzv-id={os.environ[ALLOCATION]}", *_OCM, *arguments),
    ]
    kept = {k: v for k, v in os.environ.items() if not k.startswith("SLURM_") or k in _KEPT}
    _become(command, kept)


def _become(command: list[str], environment: dict[str, str]) -> None:
    sys.stderr.flush()
    os.execvpe(command[0], command, environment)


def await_first(rank: Rank, folder: Path, patience: float = 300.0) -> None:
    """Wait until this process sees the files of a folder as the first one does.

    NFS may show a node what was there a minute ago, and processes that resume a training from
    different iterations would mix their gradients without a sign.
    """
    if rank.world_size == 1:
        return
    expected = rank.agreed(lambda: _seen(folder))
    deadline = time.monotonic() + patience
    while _seen(folder) != expected:
        if time.monotonic() > deadline:
            raise OcmError(
                f"{folder}: on {socket.gethostname()} other files than the first process sees, "
                f"even after {patience:.0f} s; the nodes need one file system: `ocm doctor --nodes`"
            )
        time.sleep(min(1.0, patience / 10))


def _seen(folder: Path) -> dict[str, str]:
    """Return digests by path; a file that goes while it is looked at is left out."""
    found = {}
    for path in folder.rglob("*"):
        with suppress(OSError):  # a folder, or gone
            found[path.relative_to(folder).as_posix()] = sha256_of(path)
    return found
