"""Interrupted work resumes to the same bytes, and nothing half-written is taken for whole."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.pipeline.conftest import NAME, TASKS, Project

RUN = ("snakemake", "--cores", "1")
WHOLE = "every file is as its manifest says"
TRAINED = ("score/trained", "heads/trained")  # stages with checkpoints


def sign_of(project: Project, task: str) -> Path:
    """Return a file of the staging folder that exists once a stage is under way."""
    stage, _, part = task.partition("/")
    phase = {"encode": "encode", "sample": "sample", "report": "report"}.get(stage, "evaluate")
    phase = "train" if part == "trained" else phase
    name = "state/training.safetensors" if task in TRAINED else "key"
    return project.root / "artifacts" / NAME / phase / stage / f".{part}.staging" / name


def kill_at(project: Project, task: str) -> None:
    """Run everything, and kill -9 all of it in the middle of `task`."""
    sign = sign_of(project, task)
    manifest = sign.parents[0 if sign.name == "key" else 1].parent / task.split("/")[1]
    while True:
        _forget(project, manifest)  # it was quicker than the signal, now or before: once more
        if project.killed(sign, *RUN) and not (manifest / "manifest.json").exists():
            return


def _forget(project: Project, folder: Path) -> None:
    """Remove an artifact, and the page without which nobody would ask for it again."""
    if folder.exists():
        shutil.rmtree(folder)
        shutil.rmtree(project.root / f"artifacts/{NAME}/report", ignore_errors=True)
        (project.root / f"reports/{NAME}.html").unlink(missing_ok=True)


@pytest.mark.parametrize(
    "tasks",
    [("heads/trained", "sample/all"), pytest.param(TASKS, marks=pytest.mark.slow)],
    ids=["two", "all"],
)
def test_killed_in_stages_a_run_ends_in_the_same_bytes(
    empty: Project, made_by_dvc: Project, tmp_path: Path, tasks: tuple[str, ...]
) -> None:
    project = empty.copy(tmp_path / "killed")
    for task in tasks:
        kill_at(project, task)
    project.run(*RUN)
    assert project.digests() == made_by_dvc.digests()
    assert WHOLE in project.run("ocm", "verify")
    assert not [*project.root.glob(f"artifacts/{NAME}/*/*/.*.staging")]


def test_an_interrupted_rerun_costs_nothing(project: Project) -> None:
    """The old artifacts and page stay; what is left is named, and removed by `ocm clean`."""
    before, metrics = project.digests(), project.metrics()
    page = (project.root / f"reports/{NAME}.html").read_bytes()
    project.edit({"train": {"heads": {"learning_rate": 0.5}}})
    sign = sign_of(project, "heads/trained")
    assert project.killed(sign, *RUN)
    assert project.digests() == before and project.metrics() == metrics
    assert (project.root / f"reports/{NAME}.html").read_bytes() == page
    assert WHOLE in project.run("ocm", "verify")
    left = f"artifacts/{NAME}/train/heads/.trained.staging"
    assert left not in project.states(), "a run would resume from it"
    assert not project.run("ocm", "clean") and sign.exists()
    project.git("checkout", "--", "params")
    assert "left by an interrupted run" in project.states()[left]
    assert f"{left}: removed" in project.run("ocm", "clean")
    assert left not in project.states() and not sign.exists()
    project.run(*RUN)  # makes again what Snakemake knows to have been interrupted
    assert project.digests() == before


def test_a_rerun_that_fails_leaves_the_old_result(project: Project) -> None:
    before = project.digests()
    project.edit({"train": {"score": {"learning_rate": 1e9}}})
    assert "diverged" in project.run(*RUN, fails=True)
    assert project.digests() == before
    assert WHOLE in project.run("ocm", "verify")
