"""Small experiments, Snakemake at work on them, and gates at which its jobs wait for a test."""

from __future__ import annotations

import fcntl
import subprocess
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import yaml

from ocm_core.pipeline.stage import stages
from tests.cluster.slurm import Slurm, stop_when
from tests.pipeline.conftest import NOWHERE, Project

PATIENCE = 1800.0  # seconds: a machine may be busy with other things
# A pixel and a latent smoke experiment with fewer jobs, as each costs some seconds: no selection of
# heads, optimal timesteps, standard deviations or counts; one job for all samples.
PIXELS, LATENTS = "cifar10_ls_few", "imagenet256_few"
ITERATIONS = 60  # of the heads, whose state is kept every ten
FEW: dict[str, Any] = {
    "train.heads.iterations": ITERATIONS,
    "train.selection": {"kind": "last"},
    "sample.split": [],
    "evaluate.posterior_std": None,
    "evaluate.operations": None,
    "evaluate.likelihood.timesteps": {"even": {"kind": "even"}},
}


def small(made: Project, folder: Path) -> Project:
    """Copy a project that needs no network, and add `few`, which is `smoke` with less in it."""
    project = made.copy(folder / "project")
    project.env |= {"GLOO_SOCKET_IFNAME": "lo", "http_proxy": NOWHERE, "no_proxy": "127.0.0.1"}
    presets = project.root / "params/preset"
    smoke = yaml.safe_load((presets / "smoke.yaml").read_text())
    (presets / "few.yaml").write_text(yaml.safe_dump(smoke | FEW, sort_keys=False))
    return project


class Run:
    """A command in a project, while a test does other things; it does not outlive the test."""

    def __init__(self, project: Project, *command: str) -> None:
        self.project = project
        self.file = project.root / "said.txt"
        with self.file.open("w") as said:
            self.process = subprocess.Popen(
                command, cwd=project.root, env=project.env, stdout=said, stderr=said
            )

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *raised: object) -> None:
        self.process.kill()
        self.process.wait()

    def ends(self) -> None:
        assert self.process.wait(PATIENCE) == 0, self.file.read_text()

    def goes_on_until(self, holds: Callable[[], bool], what: str) -> None:
        """Fails as soon as the run has ended without it."""
        deadline = time.monotonic() + PATIENCE
        while not holds():
            over = self.process.poll() is not None or time.monotonic() > deadline
            assert not over, f"no {what}: {self.file.read_text()}"
            time.sleep(0.2)


class Gate(ExitStack):
    """Keeps the job of a task waiting, as another run that makes the same artifact would."""

    def __init__(self, project: Project, slurm: Slurm, name: str, task: str) -> None:
        super().__init__()
        self.slurm = slurm
        stage, _, part = task.partition("/")
        self.rule = f"{stage}_{name}_{stage}_{part}"
        folder = project.root / "artifacts" / name / stages()[stage].phase
        self.staging = folder / stage / f".{part}.staging"
        self.log = project.root / f"logs/{name}/{task}.log"
        lock = folder / f".locks/{stage}-{part}.making"
        lock.parent.mkdir(parents=True, exist_ok=True)
        fcntl.flock(self.enter_context(lock.open("a")), fcntl.LOCK_EX)

    def stops(self, run: Run, holds: Callable[[], bool]) -> str:
        """Open, and let the job go on to that point, where it stands still; its id."""
        run.goes_on_until(self._is_reached, f"job of {self.rule} at its gate")
        job = self.slurm.job_of(self.rule)
        assert job is not None
        self.close()
        assert stop_when(job, holds), f"{self.rule} had ended: {self.log.read_text()}"
        return job

    def _is_reached(self) -> bool:
        waiting = self.log.exists() and "waiting for that one to end" in self.log.read_text()
        return waiting and self.slurm.job_of(self.rule) is not None
