"""Describe this computer and its packages, and ask nodes of a cluster for what a job needs."""

import fcntl
import os
import platform
import re
import shutil
import subprocess
import sys
from importlib import import_module
from importlib.metadata import distributions
from pathlib import Path
from shlex import quote
from tempfile import NamedTemporaryFile
from typing import Any

from ocm_core.errors import OcmError

PINS, MISSING = Path("requirements.txt"), "is missing"
MODEL = "diffusers.models.unets.unet_2d"  # what importing a model of diffusers takes
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


def machine() -> dict[str, Any]:
    """Return the versions and the devices of this computer; memory and disk in bytes."""
    import torch

    gpus = {"mps": host_memory()} if torch.backends.mps.is_available() else {}
    for index in range(torch.cuda.device_count()):
        gpu = torch.cuda.get_device_properties(index)
        gpus[f"cuda:{index} {gpu.name}"] = gpu.total_memory
    return {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "cores": os.cpu_count() or 1,
        "memory": host_memory(),
        "free_disk": shutil.disk_usage(Path.cwd()).free,
        "gpus": gpus,
    }


def host_memory() -> int:
    """Return the bytes of memory of this computer."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def differing_packages(pins: Path = PINS) -> list[str]:
    """Return a line for each package of another version (a build such as +cpu is the same)."""
    lines = re.findall(r"^([^\s#=]+)==(\S+)", pins.read_text(), re.M) if pins.exists() else []
    found = {name: [p.version for p in distributions(name=name)] or [MISSING] for name, _ in lines}
    wrong = ((name, pin) for name, pin in lines if found[name][0].partition("+")[0] != pin)
    return [f"{name} {found[name][0]}, pinned {pin}" for name, pin in wrong]


def diffusers_problem() -> str | None:
    """Return why models of diffusers cannot be imported, and what to do; None if they can."""
    try:
        import_module(MODEL)
    except (ImportError, RuntimeError) as error:
        reason = str(error).strip().splitlines()[-1]
        return (
            f"diffusers cannot be imported ({reason}); run `pip uninstall torchvision`, which "
            "nothing here needs, or make the environment again (`rm -r .venv && make env`)"
        )
    return None


def node_problems(nodes: int, folder: Path | None = None, python: Path | None = None) -> list[str]:
    """Return a line for each thing that a node lacks, of as many as SLURM gives at once.

    `srun` starts a shell on each while a lock is held here: a node on which the same file can be
    locked again sees another disk, or locks that end at its own door.
    """
    if shutil.which("srun") is None:
        raise OcmError(f"--nodes {nodes}: there is no `srun` here; ask on a cluster's login node")
    place, program = quote(str(folder or Path.cwd())), quote(str(python or sys.executable))
    with NamedTemporaryFile(dir=Path.cwd(), prefix=".nodes-") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        token = Path(file.name).name
        script = f"""
            say() {{ echo "${{SLURMD_NODENAME:-$(hostname)}}: $*"; exit 1; }}
            cd {place} 2>/dev/null || say no folder {place} there
            test -e {token} || say {place} is another folder there: not shared
            test -x {program} || say no {program} there: no environment
            why=$({program} -c {quote(_LOCK)} {token} 2>&1) || say $why
        """
        each = [f"--nodes={nodes}", f"--ntasks={nodes}", "--ntasks-per-node=1", "--chdir=/"]
        command = ["srun", *each, "--wait=0", "sh", "-c", script]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    said = [line for line in done.stdout.splitlines() if line]
    if done.returncode and not said:
        raise OcmError(f"--nodes {nodes}: {done.stderr.strip().splitlines()[-1]}")
    return sorted(said)
