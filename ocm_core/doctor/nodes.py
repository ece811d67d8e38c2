"""Whether the nodes of a cluster have what a job needs: the folder, the environment, shared locks.

`srun` starts a line of shell on each, with a lock held here meanwhile: a node on which the same
file can be locked again sees another disk, or locks that end at its own door.
"""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import sys
from pathlib import Path
from shlex import quote
from tempfile import NamedTemporaryFile

from ocm_core.errors import OcmError

_LOCK = """
import fcntl, sys
try:
    fcntl.flock(open(sys.argv[1]), fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    sys.exit(0)
except OSError as error:
    sys.exit(f"no locks on this file system ({error.strerror})")
sys.exit("locks are not shared: two nodes could write one artifact")
"""


def problems(nodes: int, folder: Path | None = None, python: Path | None = None) -> list[str]:
    """A line for each thing that a node does not have; of as many nodes as SLURM gives at once."""
    if shutil.which("srun") is None:
        raise OcmError(f"--nodes {nodes}: there is no `srun` here; ask on a cluster's login node")
    folder, python = folder or Path.cwd(), python or Path(sys.executable)
    with NamedTemporaryFile(dir=Path.cwd(), prefix=".nodes-") as token:
        fcntl.flock(token, fcntl.LOCK_EX)
        script = _script(folder, python, Path(token.name).name)
        each = [f"--nodes={nodes}", f"--ntasks={nodes}", "--ntasks-per-node=1", "--chdir=/"]
        command = ["srun", *each, "--wait=0", "sh", "-c", script]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    said = [line for line in done.stdout.splitlines() if line]
    if done.returncode and not said:
        raise OcmError(f"--nodes {nodes}: {done.stderr.strip().splitlines()[-1]}")
    return sorted(said)


def _script(folder: Path, python: Path, token: str) -> str:
    """Says on stdout what is wrong, with the node's name before it."""
    say = 'say() { echo "${SLURMD_NODENAME:-$(hostname)}: $*"; exit 1; }'
    return "\n".join(
        [
            say,
            f"cd {quote(str(folder))} 2>/dev/null || say no folder {quote(str(folder))} there",
            f"test -e {token} || say {quote(str(folder))} is another folder there: not shared",
            f"test -x {quote(str(python))} || say no {quote(str(python))} there: no environment",
            f"why=$({quote(str(python))} -c {quote(_LOCK)} {token} 2>&1) || say $why",
        ]
    )
