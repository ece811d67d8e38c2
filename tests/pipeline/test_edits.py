"""An edit in `params/` is never ignored: the new result comes, or a stop that names the file."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from tests.pipeline.conftest import NAME, OVERLAY, Project

RESOLVED = f"params/resolved/{NAME}.yaml"
PAGE = f"reports/{NAME}.html"
RETITLED = {"report": {"title": "Edited"}}
MISSPELT = {"report": {"titel": "Edited"}}
OTHER_GRAPH = {"evaluate": {"mmd": None}}


@pytest.fixture
def project(made_by_snakemake: Project, tmp_path: Path) -> Project:
    return made_by_snakemake.copy(tmp_path / "project")


def title(project: Project) -> bool:
    return "Edited" in (project.root / PAGE).read_text()


def test_snakemake_plans_with_an_edit_and_then_makes_it(project: Project) -> None:
    resolved = (project.root / RESOLVED).read_text()
    project.edit(RETITLED)
    assert project.stale_in_snakemake() == {"report/all"}
    assert (project.root / RESOLVED).read_text() == resolved, "a dry run writes nothing"
    project.run("snakemake", "--cores", "2")
    assert title(project)
    assert "out of date" not in project.run("ocm", "params", "--check")
    assert project.stale_in_snakemake() == set()
    assert project.changed_in_dvc() == set()


def test_dvc_sees_an_edit_and_makes_it(project: Project) -> None:
    project.edit(RETITLED)
    status = project.run("dvc", "status")
    assert f"modified:           {OVERLAY}" in status
    project.run("dvc", "repro")
    assert title(project)
    assert "out of date" not in project.run("ocm", "params", "--check")
    assert project.changed_in_dvc() == set()


@pytest.mark.parametrize("file", [PAGE, f"reports/{NAME}.metrics.json"])
def test_a_result_that_was_deleted_is_made_again(project: Project, file: str) -> None:
    (project.root / file).unlink()
    assert project.stale_in_snakemake() == {"report/all"}
    assert project.changed_in_dvc() == {"report/all"}


def test_an_edited_group_counts_like_an_edited_overlay(project: Project) -> None:
    project.edit({"mmd": {"bandwidths": [0.5]}}, "params/evaluate/mixture.yaml")
    assert project.stale_in_snakemake() == {"evaluate_points/all", "report/all"}
    assert project.changed_in_dvc() == {"params/all"}


def test_an_experiment_that_was_just_written_can_be_run(project: Project) -> None:
    (project.root / "params/experiment/mine.yaml").write_text(
        f"# @package _global_\ndefaults: [{NAME}]\nreport: {{title: Mine}}\n"
    )
    said = project.run("snakemake", "--dry-run", "reports/mine.html", "--quiet", "host")
    assert "output: reports/mine.html" in said


@pytest.mark.parametrize("command", ["snakemake --dry-run", "snakemake --cores 1", "dvc repro"])
def test_a_misspelt_key_stops_both_tools(project: Project, command: str) -> None:
    project.edit(MISSPELT)
    said = project.run(*command.split(), fails=True)
    assert f"{OVERLAY}: report.titel: 'titel' is unknown; did you mean 'title'?" in said


@pytest.mark.parametrize(
    "command",
    ["status", "verify", "compare", f"doctor {NAME}", f"run report {NAME}", "index"],
)
def test_commands_stop_at_an_edit_and_say_what_to_do(project: Project, command: str) -> None:
    project.edit(RETITLED)
    said = project.run("ocm", *command.split(), fails=True)
    assert f"{OVERLAY}: edited since {RESOLVED} was composed; run `ocm params --write`" in said


@pytest.mark.parametrize("command", ["snakemake --dry-run", "dvc repro", "ocm status"])
def test_a_generated_file_is_not_to_be_edited(project: Project, command: str) -> None:
    file = project.root / RESOLVED
    tree = yaml.safe_load(file.read_text()) | RETITLED
    head = [line for line in file.read_text().splitlines() if line.startswith("#")]
    file.write_text("\n".join([*head, yaml.safe_dump(tree)]))
    said = project.run(*command.split(), fails=True)
    assert f"{RESOLVED}: edited, but it is generated; edit {OVERLAY} instead" in said
    assert not title(project)


def test_dvc_stops_where_its_own_graph_must_change(project: Project) -> None:
    before = project.digests()
    project.edit(OTHER_GRAPH)
    said = project.run("dvc", "repro", fails=True)
    assert "dvc.yaml: must change with params/; run `ocm params --write`, then `dvc repro`" in said
    assert project.digests() == before
    project.run("ocm", "params", "--write")
    project.run("dvc", "repro")
    assert "mmd" not in project.metrics()


def test_an_edited_list_of_active_experiments_is_seen(project: Project) -> None:
    (project.root / "params/active.yaml").write_text(f"active: [{NAME}, toy_mog40]\n")
    assert project.changed_in_dvc() == {"params/all"}
    assert "run `ocm params --write`, then `dvc repro`" in project.run("dvc", "repro", fails=True)


def test_a_list_of_active_experiments_that_is_none_is_refused(
    empty: Project, tmp_path: Path
) -> None:
    project = empty.copy(tmp_path / "project")
    (project.root / "params/active.yaml").write_text(f"active: {NAME}\n")
    said = project.run("snakemake", "--dry-run", fails=True)
    assert f"params/active.yaml: active: expected a list of experiments, found '{NAME}'" in said


def test_a_parameter_is_set_and_what_follows_is_run_and_compared(project: Project) -> None:
    measured = (project.root / f"logs/{NAME}/report/all.benchmark.tsv").read_text()
    took = f"{float(measured.splitlines()[1].split()[0]):.1f} s"
    said = project.run("ocm", "set", NAME, "report.title=Edited")
    assert f"{OVERLAY}: written" in said and f"to do: {took} for 1 task one by one" in said
    assert re.search(rf"^report +1 +stale: .* +{re.escape(took)} ", said, re.MULTILINE), said
    said = project.run("ocm", "rerun", NAME)
    assert title(project)
    assert "HEAD → working tree" in said and "report.title" in said


def test_a_run_that_fails_is_not_compared(project: Project) -> None:
    project.edit(MISSPELT)
    assert "working tree" not in project.run("ocm", "rerun", NAME, fails=True)
