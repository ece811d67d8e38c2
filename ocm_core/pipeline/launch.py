"""Several processes for one job: `torchrun` takes this process's place, here or on every node.

On several nodes SLURM starts one `torchrun` on each, and they meet at the node that this runs on.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Mapping, Sequence

from ocm_core.errors import OcmError

ALLOCATION = "SLURM_JOB_ID"
# Of the allocation itself; the rest is about the step that this process is in, and no other's.
_KEPT = (ALLOCATION, "SLURM_JOBID", "SLURM_CONF", "SLURM_CLUSTER_NAME")


def share_of_node(gpus: int, nodes: int) -> int:
    """How many GPUs of a job are on each of its nodes."""
    if gpus % nodes:
        raise OcmError(f"--gpus {gpus} --nodes {nodes}: each node has to get as many as any other")
    return gpus // nodes


def on_this_node(processes: int, arguments: Sequence[str]) -> None:
    """Become that many processes of `ocm` with these arguments."""
    _become([*_torchrun("--standalone", f"--nproc-per-node={processes}"), *arguments], os.environ)


def on_nodes(nodes: int, gpus: int, arguments: Sequence[str]) -> None:
    """Become one process per GPU, `gpus` of them on each node of the allocation."""
    if ALLOCATION not in os.environ:
        raise OcmError(
            f"--nodes {nodes}: this is no job of SLURM; `snakemake --profile profiles/slurm` makes "
            "one (docs/cluster.md), and on one machine --gpus alone will do"
        )
    each = ("--ntasks-per-node=1", f"--gpus-per-node={gpus}", "--cpu-bind=none", "--overlap")
    together = _torchrun(
        f"--nnodes={nodes}",
        f"--nproc-per-node={max(1, gpus)}",
        "--rdzv-backend=c10d",
        f"--rdzv-endpoint={socket.gethostname()}:{_free_port()}",
        f"--rdzv-id={os.environ[ALLOCATION]}",
    )
    start = ["srun", f"--nodes={nodes}", f"--ntasks={nodes}", *each, "--kill-on-bad-exit=1"]
    _become([*start, *together, *arguments], _of_allocation(os.environ))


def _torchrun(*options: str) -> list[str]:
    """It reads behind the module's name too, unless `--` ends its options."""
    run = [sys.executable, "-m", "torch.distributed.run", *options]
    return [*run, "-m", "--", "ocm_core.cli"]


def _of_allocation(environment: Mapping[str, str]) -> dict[str, str]:
    return {k: v for k, v in environment.items() if not k.startswith("SLURM_") or k in _KEPT}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])


def _become(command: list[str], environment: Mapping[str, str]) -> None:
    sys.stderr.flush()
    os.execvpe(command[0], command, environment)
