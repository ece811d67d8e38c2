"""Interrupted work resumes to the same bytes, and nothing half-written is taken for whole."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.pipeline.conftest import NAME, Project

RUN = ("snakemake", "--cores", "1")

# What is in the working folder once a stage is under way: a checkpoint where there are any.
UNDER_WAY = {
    "encode/all": "key",
    "score/learned": "state/training.safetensors",
    "moments/learned": "key",
    "heads/learned": "state/training.safetensors",
    "sample/all": "key",
    "evaluate_points/all": "key",
    "evaluate_covariance/all": "key",
    "report/all": "key",
}


def kill_at(project: Project, task: str) -> None:
    """Run everything, and kill -9 all of it in the middle of `task`."""
    folder = project.root / "artifacts" / NAME / task
    _forget_if_whole(project, folder)  # the scheduler may have come by it before an earlier kill
    sign = folder.with_name(f".{folder.name}.working") / UNDER_WAY[task]
    while not _kill_when(project, sign, folder / "manifest.json"):
        _forget_if_whole(project, folder)  # it was quicker than the signal: once more


def _forget_if_whole(project: Project, folder: Path) -> None:
    """And the page, without which nobody would ask for the artifact again."""
    if (folder / "manifest.json").exists():
        shutil.rmtree(folder)
        shutil.rmtree(folder.parents[1] / "report", ignore_errors=True)
        (project.root / f"reports/{NAME}.html").unlink(missing_ok=True)


def _kill_when(project: Project, sign: Path, manifest: Path) -> bool:
    """Whether the kill came before there was a new manifest."""
    before = manifest.read_bytes() if manifest.exists() else None
    in_time = project.killed(sign, *RUN)
    return in_time and (manifest.read_bytes() if manifest.exists() else None) == before


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


def test_an_interrupted_rerun_costs_nothing(made_by_snakemake: Project, tmp_path: Path) -> None:
    """The old artifacts, page and numbers stay as they were, and taking the edit back is enough."""
    project = made_by_snakemake.copy(tmp_path / "rerun")
    before, metrics = project.digests(), project.metrics()
    page = (project.root / f"reports/{NAME}.html").read_bytes()
    project.change({"train": {"heads": {"learning_rate": 0.5}}})
    working = project.root / f"artifacts/{NAME}/heads/.learned.working"
    manifest = project.root / f"artifacts/{NAME}/heads/learned/manifest.json"
    assert _kill_when(project, working / "state/training.safetensors", manifest)
    assert project.digests() == before and project.metrics() == metrics
    assert (project.root / f"reports/{NAME}.html").read_bytes() == page
    assert "as its manifest says" in project.run("ocm", "verify")
    project.git("checkout", "--", "params")
    project.run("snakemake", "--cores", "1")
    assert project.digests() == before


def test_a_rerun_that_fails_leaves_the_old_result(
    made_by_snakemake: Project, tmp_path: Path
) -> None:
    project = made_by_snakemake.copy(tmp_path / "failed")
    before = project.digests()
    project.change({"train": {"score": {"learning_rate": 1e9}}})
    assert "diverged" in project.run("snakemake", "--cores", "1", fails=True)
    assert project.digests() == before
    assert "as its manifest says" in project.run("ocm", "verify")


def test_two_runs_at_once_both_succeed(
    empty: Project, made_by_dvc: Project, tmp_path: Path
) -> None:
    project = empty.copy(tmp_path / "two")
    runs = [project.start(*RUN), project.start(*RUN)]
    said = [run.communicate()[0] for run in runs]
    assert [run.returncode for run in runs] == [0, 0], "\n".join(said)
    assert "another run is making it; waiting for that one to end" in "\n".join(said)
    assert project.digests() == made_by_dvc.digests()
    assert "as its manifest says" in project.run("ocm", "verify")
