"""An edit concerns the stages that use the edited file, and no others: seen by both tools."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
import yaml

from ocm_core.params.resolved import load
from ocm_core.pipeline.staleness import source_files
from ocm_core.pipeline.table import tasks
from tests.browser.conftest import OVERLAYS
from tests.pipeline.conftest import Project

NAME = "tiny_digits"
UNTOUCHED = ("encode", "classifier", "reference", "evaluate_images")
# as many as these stages of `digits` may have; an edge that should not be there shows here
MOST = {"encode": 23, "classifier": 35, "reference": 28, "evaluate_images": 42}


@pytest.mark.parametrize("stage", UNTOUCHED)
def test_few_files_are_behind_a_stage_that_neither_samples_nor_trains_a_score(stage: str) -> None:
    experiment = load("digits")
    for node in (node for node in tasks(experiment) if node.stage == stage):
        files = [file.as_posix() for file in source_files(experiment, node)]
        assert len(files) <= MOST[stage], files
        for folder in ("samplers", "covariance", "networks", "likelihood"):
            assert not [file for file in files if file.startswith(f"ocm_core/{folder}/")]


@pytest.fixture(scope="module")
def edited(finished: Callable[..., Project], tmp_path_factory: pytest.TempPathFactory) -> Project:
    """Digits in small, run by Snakemake and recorded in DVC; then the sampling loop is edited."""
    project = finished(NAME, OVERLAYS[NAME]).copy(tmp_path_factory.mktemp("closures") / "project")
    active = {"active": [NAME]}
    (project.root / "params/active.yaml").write_text(yaml.safe_dump(active))
    project.run("ocm", "params", "--write")
    project.run("ocm", "sync")
    project.commit("results")
    assert project.run("dvc", "status", "--quiet") == ""
    with (project.root / "ocm_core/samplers/ancestral.py").open("a") as source:
        source.write("\n# edited\n")
    return project


def task(stage: str) -> str:
    """A reference set is of a space."""
    return f"{stage}/{'classifier' if stage == 'reference' else 'all'}"


def planned(project: Project, stage: str) -> bool:
    """Whether Snakemake would run this stage for its own sake, and not for what is before it."""
    target = f"artifacts/{NAME}/{task(stage)}/manifest.json"
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
    before = set(UNTOUCHED) - {"evaluate_images"}
    assert {f"{NAME} {task(stage)}: current" for stage in before} <= set(lines)
    assert f"{NAME} sample/all: stale: made with other sources" in lines
    assert f"{NAME} evaluate_images/all: stale: sample/all is stale" in lines
