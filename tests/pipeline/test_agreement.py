"""Snakemake and DVC agree about what is done, whichever of them did it."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
import yaml

from tests.pipeline.conftest import NAME, OVERLAY, ROOT, Project

WIDER = {"evaluate": {"mmd": {"bandwidths": [0.5, 1.5]}}}


def nothing_to_do(project: Project) -> bool:
    repro = project.run("dvc", "repro")
    plan = project.run("snakemake", "--dry-run")
    return "Running stage" not in repro and "Nothing to be done" in plan


@pytest.fixture(scope="module")
def changed(made_by_snakemake: Project, tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A second commit, with another parameter of the evaluation and results by Snakemake."""
    project = made_by_snakemake.copy(tmp_path_factory.mktemp("changed") / "project")
    project.change(WIDER)
    project.run("snakemake", "--cores", "2")
    project.run("ocm", "sync")
    project.commit("other bandwidths")
    return project


def test_after_snakemake_dvc_has_nothing_to_do(made_by_snakemake: Project) -> None:
    assert made_by_snakemake.changed_in_dvc() == set()
    assert nothing_to_do(made_by_snakemake)


def test_sync_forgets_stages_that_are_gone(made_by_snakemake: Project, tmp_path: Path) -> None:
    project = made_by_snakemake.copy(tmp_path / "project")
    lock = project.root / "dvc.lock"
    recorded = lock.read_text()
    lock.write_text(recorded + "  toy_mog9-sample-gone:\n    cmd: 'true'\n")
    project.run("ocm", "sync")
    assert yaml.safe_load(lock.read_text()) == yaml.safe_load(recorded)
    assert project.run("dvc", "status").strip() == "Data and pipelines are up to date."


def test_fresh_clone_with_pulled_artifacts_has_nothing_to_do(
    made_by_snakemake: Project, tmp_path: Path
) -> None:
    project = made_by_snakemake.clone(tmp_path / "clone")
    project.run("dvc", "pull")
    project.run("ocm", "sync")
    assert nothing_to_do(project)
    assert project.digests() == made_by_snakemake.digests()


def test_older_commit_has_nothing_to_do(changed: Project, tmp_path: Path) -> None:
    project = changed.copy(tmp_path / "older")
    newer = project.metrics()
    project.git("checkout", "--quiet", "HEAD~1")
    project.run("dvc", "checkout")
    assert "follow it" in project.run("ocm", "sync")
    assert nothing_to_do(project)
    assert project.metrics() != newer


def test_changed_parameter_recomputes_in_a_fresh_clone(
    made_by_snakemake: Project, changed: Project, tmp_path: Path
) -> None:
    project = made_by_snakemake.clone(tmp_path / "clone")
    project.run("dvc", "pull")
    project.change(WIDER)
    project.run("dvc", "repro")
    assert project.metrics() == changed.metrics() != made_by_snakemake.metrics()


def test_experiments_give_different_and_right_results(
    made_by_snakemake: Project, changed: Project, tmp_path: Path
) -> None:
    project = made_by_snakemake.clone(tmp_path / "clone")
    project.run("dvc", "pull")
    bandwidths = f"{OVERLAY}:+evaluate.mmd.bandwidths"
    project.run("dvc", "exp", "run", "--name", "here", "--set-param", f"{bandwidths}=[0.5,1.5]")
    elsewhere = ["--temp", "--name", "elsewhere"]
    project.run("dvc", "exp", "run", *elsewhere, "--set-param", f"{bandwidths}=[3.0]")
    here, there = _metrics_of(project, "here"), _metrics_of(project, "elsewhere")
    assert here == _metrics_of(changed, "HEAD")
    assert len({here, there, _metrics_of(made_by_snakemake, "HEAD")}) == 3


def test_experiments_as_the_document_has_them(made_by_snakemake: Project, tmp_path: Path) -> None:
    project = made_by_snakemake.copy(tmp_path / "copy")
    lines = (ROOT / "docs/running.md").read_text().splitlines()
    commands = [line.replace("digits", NAME) for line in lines if line.startswith("dvc exp ")]
    dry, run, show = map(shlex.split, commands)
    assert "Running stage 'params'" in project.run(*dry)
    assert not project.git("status", "--short", "params", "reports")
    project.run(*run)
    assert "out of date" not in project.run("ocm", "params", "--check")
    assert project.changed_in_dvc() == set()
    (header,) = [line for line in project.run(*show).splitlines() if "Experiment" in line]
    assert "train.heads.learning_rate" in header
    assert _metrics_of(project, "fast") != _metrics_of(made_by_snakemake, "HEAD")


def _metrics_of(project: Project, revision: str) -> str:
    found = project.git("for-each-ref", "--format=%(refname)", f"refs/exps/**/{revision}")
    return project.git("show", f"{found.strip() or revision}:reports/{NAME}.metrics.json")


def test_metrics_and_parameters_are_compared_across_commits(changed: Project) -> None:
    assert "ddpm.ocm_relative.K3" in changed.run("dvc", "metrics", "diff", "HEAD~1")
    assert "bandwidths" in changed.run("dvc", "params", "diff", "HEAD~1")
    page = changed.run("dvc", "plots", "show")
    assert "index.html" in page
    assert "plots" not in changed.git("status", "--short")


def test_sync_refuses_what_is_not_current(made_by_snakemake: Project, tmp_path: Path) -> None:
    project = made_by_snakemake.copy(tmp_path / "copy")
    project.change(WIDER)
    said = project.run("ocm", "sync", fails=True)
    assert f"artifacts/{NAME}/evaluate_points/all: stale: made with other parameters" in said
    assert "artifacts/toy_mog9/heads" not in said
    assert "nothing was recorded" in said


def test_sync_refuses_a_corrupted_file_and_names_it(
    made_by_snakemake: Project, tmp_path: Path
) -> None:
    project = made_by_snakemake.copy(tmp_path / "copy")
    lock = (project.root / "dvc.lock").read_text()
    shard = project.root / f"artifacts/{NAME}/encode/all/train.zarr/x/c/0/0"
    content = bytearray(shard.read_bytes())
    content[len(content) // 2] ^= 1
    shard.write_bytes(content)
    said = project.run("ocm", "sync", fails=True)
    assert f"{shard.relative_to(project.root)}: changed, its sha256 is not the manifest's" in said
    assert (project.root / "dvc.lock").read_text() == lock
