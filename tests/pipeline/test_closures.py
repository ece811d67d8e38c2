"""An edit concerns the stages that use the edited file, and no others: seen by both tools."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
import yaml

from ocm_core.params.resolved import load
from ocm_core.pipeline.staleness import source_files
from ocm_core.pipeline.table import tasks
from tests.pipeline.conftest import Project

NAME = "digits_tiny"
FEW = {"iterations": 20, "checkpoint_every": 20}
GRIDS = [{"steps": [2], "guidance": [1.0]}]
TINY = {
    "defaults": ["digits"],
    "train": {"score": FEW, "heads": FEW, "classifier": FEW, "moments": {"draws": 2}},
    "sample": {
        "count": 8,
        "batch_size": 8,
        "seeds": [0],
        "split": [],
        "samplers": {
            "ddpm": {"grids": GRIDS, "methods": ["beta", "ocm"]},
            "probes": {"grids": GRIDS, "methods": ["rademacher_1"]},
            "ddim": {"grids": GRIDS, "methods": ["delta", "ocm"]},
        },
    },
    "evaluate": {"likelihood": None, "deviation": None, "cost": None},
}
UNTOUCHED = ("encode", "classifier", "reference", "evaluate_images")
# as many as these stages of `digits` may have; an edge that should not be there shows here
MOST = {"encode": 16, "classifier": 30, "reference": 31, "evaluate_images": 34}


@pytest.mark.parametrize("stage", UNTOUCHED)
def test_few_files_are_behind_a_stage_that_neither_samples_nor_trains_a_score(stage: str) -> None:
    experiment = load("digits")
    for task in (task for task in tasks(experiment) if task.stage == stage):
        files = [file.as_posix() for file in source_files(experiment, task)]
        assert len(files) <= MOST[stage], files
        for folder in ("samplers", "covariance", "networks", "likelihood"):
            assert not [file for file in files if file.startswith(f"ocm_core/{folder}/")]


@pytest.fixture(scope="module")
def edited(finished: Callable[..., Project], tmp_path_factory: pytest.TempPathFactory) -> Project:
    """Digits in small, run by Snakemake and recorded in DVC; then the sampling loop is edited."""
    project = finished(NAME, TINY).copy(tmp_path_factory.mktemp("closures") / "project")
    active = {"active": [NAME]}
    (project.root / "params/active.yaml").write_text(yaml.safe_dump(active))
    project.run("ocm", "params", "--write")
    project.run("ocm", "sync")
    project.commit("results")
    assert project.run("dvc", "status", "--quiet") == ""
    with (project.root / "ocm_core/samplers/ancestral.py").open("a") as source:
        source.write("\n# edited\n")
    return project


def planned(project: Project, stage: str) -> bool:
    """Whether Snakemake would run this stage for its own sake, and not for what is before it."""
    target = f"artifacts/{NAME}/{stage}/all/manifest.json"
    plan = project.run("snakemake", "--dry-run", "--allowed-rules", stage, "--", target)
    return "Nothing to be done" not in plan


@pytest.mark.parametrize("stage", UNTOUCHED)
def test_snakemake_leaves_alone_what_does_not_sample(edited: Project, stage: str) -> None:
    assert not planned(edited, stage)


def test_both_tools_see_that_samples_are_stale(edited: Project) -> None:
    assert planned(edited, "sample")
    changed = set(json.loads(edited.run("dvc", "status", "--json")))
    assert changed == {f"{NAME}-sample"}


def test_ocm_status_agrees(edited: Project) -> None:
    lines = edited.run("ocm", "status", NAME).splitlines()
    assert {f"{NAME} {stage}/all: current" for stage in UNTOUCHED} <= set(lines)
    assert f"{NAME} sample/all: stale: made with other sources" in lines
