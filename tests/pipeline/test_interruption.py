"""Interrupted work resumes to the same bytes, and nothing half-written is taken for whole."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

from tests.pipeline.conftest import NAME, Project

# What is on disk once a stage is under way: a checkpoint where there are any.
UNDER_WAY = {
    "encode/all": ".working.json",
    "score/learned": "training.safetensors",
    "moments/learned": ".working.json",
    "heads/learned": "training.safetensors",
    "sample/all": ".working.json",
    "evaluate_points/all": ".working.json",
    "evaluate_covariance/all": ".working.json",
    "report/all": ".working.json",
}


def kill_at(project: Project, task: str) -> None:
    """Run everything, and kill -9 all of it in the middle of `task`."""
    folder = project.root / "artifacts" / NAME / task
    _forget_if_whole(project, folder)  # the scheduler may have come by it before an earlier kill
    while not _kill_when(project, folder / UNDER_WAY[task]):
        _forget_if_whole(project, folder)  # it was quicker than the signal: once more


def _forget_if_whole(project: Project, folder: Path) -> None:
    """And the page, without which nobody would ask for the artifact again."""
    if (folder / "manifest.json").exists():
        shutil.rmtree(folder)
        shutil.rmtree(folder.parents[1] / "report", ignore_errors=True)
        (project.root / f"reports/{NAME}.html").unlink(missing_ok=True)


def _kill_when(project: Project, sign: Path) -> bool:
    """Whether the kill came before the artifact was whole."""
    process = subprocess.Popen(
        ["snakemake", "--cores", "1"],
        cwd=project.root,
        env=project.env,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    while not sign.exists():
        if process.poll() is not None:  # it came and went between two looks
            assert process.returncode == 0, f"{sign} has not been seen"
            return False
        time.sleep(0.001)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    return not (sign.parent / "manifest.json").exists()


def test_after_dvc_repro_snakemake_has_nothing_to_do(made_by_dvc: Project) -> None:
    assert "Nothing to be done" in made_by_dvc.run("snakemake", "--dry-run")
    assert made_by_dvc.changed_in_dvc() == set()


def test_killed_in_every_stage_gives_the_same_bytes(
    empty: Project, made_by_dvc: Project, tmp_path: Path
) -> None:
    assert made_by_dvc.digests().keys() == UNDER_WAY.keys()
    project = empty.copy(tmp_path / "killed")
    for task in UNDER_WAY:
        kill_at(project, task)
    project.run("snakemake", "--cores", "1")
    assert project.digests() == made_by_dvc.digests()
    assert "as its manifest says" in project.run("ocm", "verify")
