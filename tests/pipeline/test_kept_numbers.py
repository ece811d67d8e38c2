"""DVC shows and compares the numbers of every experiment that has some here, active or not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.pipeline.conftest import NAME, Project

OTHER = "toy_mog40"  # not active: it has no stage


def write(project: Project, name: str, mmd: float) -> None:
    """Leave what a report leaves, with one number."""
    metrics = {"mmd": {"ddpm": {"beta": {"K5": mmd}}}}
    (project.root / f"reports/{name}.metrics.json").write_text(json.dumps(metrics))
    folder = project.root / f"reports/{name}.plots"
    folder.mkdir(exist_ok=True)
    (folder / "mmd-ddpm-true.csv").write_text(f"steps,beta\n5,{mmd}\n10,0.25\n")


@pytest.fixture(scope="module")
def project(empty: Project, tmp_path_factory: pytest.TempPathFactory) -> Project:
    """Numbers of two experiments are committed; since then both have changed."""
    project = empty.copy(tmp_path_factory.mktemp("numbers") / "project")
    for name in (NAME, OTHER):
        write(project, name, mmd=0.5)
    project.run("ocm", "params", "--write")
    project.commit("numbers")
    for name in (NAME, OTHER):
        write(project, name, mmd=0.75)
    overlay = project.root / f"params/experiment/{OTHER}.yaml"
    overlay.write_text(overlay.read_text() + "schedule:\n  steps: 500\n")
    project.run("ocm", "params", "--write")
    return project


def said(project: Project, *command: str) -> Any:
    answer = project.run("dvc", *command, "--json")  # and a warning behind it
    return json.JSONDecoder().raw_decode(answer)[0]


def test_metrics_of_both(project: Project) -> None:
    difference = said(project, "metrics", "diff", "HEAD")
    assert difference.keys() == {f"reports/{name}.metrics.json" for name in (NAME, OTHER)}
    for found in difference.values():
        assert found == {"mmd.ddpm.beta.K5": {"old": 0.5, "new": 0.75, "diff": 0.25}}


def test_parameters(project: Project) -> None:
    difference = said(project, "params", "diff", "HEAD")
    assert difference == {
        f"params/resolved/{OTHER}.yaml": {"schedule.steps": {"old": 1000, "new": 500, "diff": -500}}
    }


def test_plots(project: Project) -> None:
    plots = said(project, "plots", "diff", "HEAD")
    assert not [error for error in plots.get("errors", []) if OTHER in error["name"]]
    (drawn,) = plots["data"][f"{OTHER} mmd ddpm true"]
    assert set(drawn["revisions"]) == {"HEAD", "workspace"}
    points = {(row["rev"], row["beta"]) for row in drawn["content"]["data"]["values"]}
    assert {("HEAD", "0.5"), ("workspace", "0.75")} <= points


def test_only_the_active_are_recorded(project: Project) -> None:
    said = project.run("ocm", "sync", OTHER, fails=True)
    assert f"{OTHER}: DVC records only the active experiments" in said


def test_numbers_that_go_or_come_are_noticed(project: Project, tmp_path: Path) -> None:
    copied = project.copy(tmp_path / "project")
    (copied.root / f"reports/{OTHER}.metrics.json").unlink()
    assert copied.run("ocm", "params", "--check", fails=True).startswith("dvc.yaml: out of date")
