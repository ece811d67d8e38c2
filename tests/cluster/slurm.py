"""A SLURM of two nodes on this host, with stand-in GPUs: for root, where apt has the packages.

The GPUs are character devices like /dev/null: SLURM hands them out and says so in
CUDA_VISIBLE_DEVICES, as it does with real ones, while the work itself stays on the CPU.
"""

import os
import shutil
import signal
import socket
import stat
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from string import Template

PACKAGES = ("slurm-wlm", "munge")
CONFIGURATION = Path("/etc/slurm")
FILES = ("slurm.conf", "gres.conf")
NODES = ("node1", "node2")
GPUS = 3  # of a node
TEXT = (Path(__file__).parent / "slurm.conf").read_text()
DIES_WITH_US = ("setpriv", "--pdeathsig", "KILL")  # however this process ends


def hindrance() -> str | None:
    """Why there can be no cluster here."""
    if os.getuid():
        return "only root can start one"
    if any((CONFIGURATION / name).exists() for name in FILES):
        return f"{CONFIGURATION} has {' or '.join(FILES)} of another one, or of a killed run"
    if not shutil.which("slurmctld") and not shutil.which("apt-get"):
        return f"there is no apt to install {' '.join(PACKAGES)}"
    return None


def install() -> bool:
    """Whether the packages are there, or could be had."""
    if shutil.which("slurmctld") and shutil.which("munged"):
        return True
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    get = ["apt-get", "-qq", "install", "-y", "--no-install-recommends", *PACKAGES]
    for command in (["apt-get", "-qq", "update"], get):
        if subprocess.run(command, env=quiet, capture_output=True, check=False).returncode:
            return False
    return True


class Slurm:
    """The daemons, as processes of this one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.daemons: dict[str, subprocess.Popen[bytes]] = {}
        self.owned = ExitStack()

    def start(self) -> None:
        self._write_configuration()
        self._start_munge()
        self._start("slurmctld", "slurmctld", "-D")
        for node in NODES:
            self.start_node(node)
        self.wait_until(lambda: set(self.states().values()) == {"idle"}, "two idle nodes")

    def stop(self) -> None:
        """By their ids, and at once: nothing of it is needed again. /etc is left as it was."""
        with self.owned:  # its files
            for job in self.jobs() if "slurmctld" in self.daemons else ():
                send(signal.SIGKILL, work_of(job))
            for daemon in reversed(self.daemons.values()):
                daemon.kill()
                daemon.wait()

    def start_node(self, node: str) -> None:
        (self.folder / node).mkdir(exist_ok=True)
        self._start(node, "slurmd", "-D", "-N", node)

    def kill_node(self, node: str) -> None:
        """As a power cut would: the daemon, the steps and their work, all at once."""
        jobs = self.jobs(f"--nodelist={node}")
        self.daemons[node].kill()
        self.daemons.pop(node).wait()
        for job in jobs:
            send(signal.SIGKILL, work_of(job))

    def states(self) -> dict[str, str]:
        said = _ask("sinfo", "--Node", "--format=%N %t")
        return dict(line.split() for line in said.splitlines())

    def jobs(self, *chosen: str) -> list[str]:
        return _ask("squeue", "--states=R,CG", "--format=%i", *chosen).split()

    def job_of(self, rule: str, states: str = "R") -> str | None:
        """The id of a job of that rule and those wildcards, which its comment has."""
        said = _ask("squeue", f"--states={states}", "--format=%i %k")
        found = (line.replace("_wildcards", "").split() for line in said.splitlines())
        return next((job for job, comment in found if comment.startswith(f"rule_{rule}")), None)

    def has_ended(self, job: str, state: str) -> bool:
        return bool(_ask("squeue", f"--jobs={job}", f"--states={state}"))

    def node_of(self, job: str) -> str:
        return _ask("squeue", f"--jobs={job}", "--format=%N").strip()

    def cancel(self, job: str) -> None:
        subprocess.run(["scancel", job], check=True)

    def wait_until(self, holds: Callable[[], bool], what: str, seconds: float = 300) -> None:
        deadline = time.monotonic() + seconds
        while not holds():
            assert time.monotonic() < deadline, f"no {what} after {seconds:.0f} s: {self.logs()}"
            time.sleep(0.1)

    def logs(self) -> str:
        files = [self.folder / f"{name}.log" for name in ("slurmctld", *NODES)]
        return "\n".join(file.read_text()[-2000:] for file in files if file.exists())

    def _write_configuration(self) -> None:
        (self.folder / "state").mkdir(parents=True, exist_ok=True)
        CONFIGURATION.mkdir(exist_ok=True)
        gpus = (f"NodeName={n} Name=gpu File={','.join(_devices(self.folder, n))}" for n in NODES)
        host = socket.gethostname()
        written = Template(TEXT).substitute(host=host, folder=self.folder, gpus=GPUS)
        for name, text in zip(FILES, (written, "\n".join([*gpus, ""])), strict=True):
            self.owned.callback((CONFIGURATION / name).unlink, missing_ok=True)
            (CONFIGURATION / name).write_text(text)

    def _start_munge(self) -> None:
        run = Path("/run/munge")
        run.mkdir(mode=0o755, exist_ok=True)
        shutil.chown(run, "munge", "munge")
        (run / "munge.socket.2").unlink(missing_ok=True)
        self._start("munge", "munged", "--foreground", "--force", user="munge")
        self.wait_until((run / "munge.socket.2").exists, "socket of munge")

    def _start(self, name: str, *command: str, user: str | None = None) -> None:
        with (self.folder / f"{name}.out").open("ab") as said:
            self.daemons[name] = subprocess.Popen(
                [*DIES_WITH_US, *command], stdout=said, stderr=said, user=user
            )


def work_of(job: str, steps: bool = True) -> list[int]:
    """The processes of a job: SLURM's own for its steps, and all that they have started."""
    running = dict(_processes())
    own = {pid for pid, (_, command) in running.items() if f"slurmstepd: [{job}." in command}
    found = set(own)
    while more := {pid for pid, (parent, _) in running.items() if parent in found} - found:
        found |= more
    return sorted(found if steps else found - own)


def stop_when(job: str, holds: Callable[[], bool]) -> bool:
    """Let a job go on in slices of time, and leave it standing still; False if it ended before."""
    while work := work_of(job, steps=False):
        send(signal.SIGSTOP, work)
        if holds():
            return True
        send(signal.SIGCONT, work)
        time.sleep(0.05)
    return False


def send(sign: signal.Signals, processes: Iterable[int]) -> None:
    for process in processes:
        with suppress(ProcessLookupError):
            os.kill(process, sign)


def _processes() -> Iterator[tuple[int, tuple[int, str]]]:
    """By id: the parent's, and the command line."""
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            command = (folder / "cmdline").read_text(errors="replace")
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            yield int(folder.name), (parent, command)


def _devices(folder: Path, node: str) -> Iterator[str]:
    for file in (folder / f"{node}-gpu{number}" for number in range(GPUS)):
        if not file.exists():
            os.mknod(file, stat.S_IFCHR | 0o666, os.makedev(1, 3))
        yield str(file)


def _ask(program: str, *options: str) -> str:
    command = [program, "--noheader", *options]
    with suppress(subprocess.TimeoutExpired):  # as of a controller that does not answer
        return subprocess.run(command, capture_output=True, text=True, timeout=60).stdout
    return ""
