"""Snakemake and DVC agree about what is done, whichever of them did it."""

import json
import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from ocm_core.pipeline.stage import PHASES
from tests.pipeline.conftest import NAME, OVERLAY, ROOT, TASKS, WIDER, Project

BANDWIDTHS = f"{OVERLAY}:evaluate.mmd.bandwidths"


def nothing_to_do(project: Project) -> bool:
    repro = project.run("dvc", "repro")
    plan = project.run("snakemake", "--dry-run")
    return "Running stage" not in repro and "Nothing to be done" in plan


def phases_run(said: str) -> list[str]:
    return re.findall(rf"Running stage '(\w+)@{NAME}'", said)


@pytest.fixture(scope="module")
def changed(made_by_snakemake: Project, tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A second commit, with another parameter of an evaluation and results by Snakemake."""
    project = made_by_snakemake.copy(tmp_path_factory.mktemp("changed") / "project")
    project.edit(WIDER)
    project.run("snakemake", "--cores", "2")
    project.commit("other bandwidths")
    return project


def test_both_tools_make_the_same(made_by_dvc: Project, made_by_snakemake: Project) -> None:
    assert made_by_dvc.digests() == made_by_snakemake.digests()
    assert made_by_dvc.digests().keys() == set(TASKS)
    assert made_by_dvc.changed_in_dvc() == set()
    assert "Nothing to be done" in made_by_dvc.run("snakemake", "--dry-run")


def test_after_snakemake_dvc_has_nothing_to_do(made_by_snakemake: Project) -> None:
    assert made_by_snakemake.changed_in_dvc() == set()
    assert nothing_to_do(made_by_snakemake)
    lock = (made_by_snakemake.root / "dvc.lock").read_text()
    assert len(lock) * 12 < 60_000  # with all that may be active
    assert yaml.safe_load(lock)["stages"].keys() == {f"{p}@{NAME}" for p in ("plan", *PHASES)}


def test_repro_after_an_edit_runs_the_phases_that_it_concerns(project: Project) -> None:
    project.edit({"report": {"title": "Edited"}})
    assert phases_run(project.run("dvc", "repro")) == ["plan", "report"]
    assert "Edited" in (project.root / f"reports/{NAME}.html").read_text()
    project.edit(WIDER)
    said = project.run("dvc", "repro")
    assert phases_run(said) == ["plan", "evaluate", "report"]
    assert "covariance_error" not in said  # of the phase, only what is stale
    project.run("ocm", "sync")
    assert project.stale_in_snakemake() == project.stale_in_status() == set()
    (project.root / f"reports/{NAME}/metrics.json").unlink()
    assert project.changed_in_dvc() == {"report"}


def test_a_pulled_clone_has_nothing_to_do(made_by_snakemake: Project, tmp_path: Path) -> None:
    project, page = made_by_snakemake.clone(tmp_path / "clone"), f"reports/{NAME}.html"
    assert not (project.root / page).exists() and not (project.root / "artifacts").exists()
    project.run("ocm", "report", NAME)
    assert (project.root / page).read_bytes() == (made_by_snakemake.root / page).read_bytes()
    project.run("dvc", "pull")
    assert "recorded in DVC and in Snakemake" in project.run("ocm", "sync")
    assert nothing_to_do(project)
    assert project.digests() == made_by_snakemake.digests()
    assert not project.git("status", "--short")


def test_an_older_commit_has_nothing_to_do(changed: Project, tmp_path: Path) -> None:
    project = changed.copy(tmp_path / "older")
    newer = project.metrics()
    project.git("checkout", "--quiet", "HEAD~1")
    project.run("dvc", "checkout")
    project.run("ocm", "sync")
    assert nothing_to_do(project)
    assert project.metrics() != newer


def test_experiments_give_different_and_right_results(
    made_by_snakemake: Project, changed: Project, tmp_path: Path
) -> None:
    project = made_by_snakemake.clone(tmp_path / "clone")
    project.run("dvc", "pull")
    project.edit({"evaluate": {"mmd": {"bandwidths": [1.0]}}})
    project.commit("a key to set")
    project.run("dvc", "exp", "run", "--name", "here", "-S", f"{BANDWIDTHS}=[0.5,1.5]")
    project.run("dvc", "exp", "run", "--temp", "--name", "there", "-S", f"{BANDWIDTHS}=[3.0]")
    here, there = _metrics_of(project, "here"), _metrics_of(project, "there")
    assert here == _metrics_of(changed, "HEAD")
    assert len({here, there, _metrics_of(made_by_snakemake, "HEAD")}) == 3


@pytest.mark.slow
def test_experiments_as_the_document_has_them(project: Project) -> None:
    lines = (ROOT / "docs/running.md").read_text().splitlines()
    commands = [line.replace("digits", NAME) for line in lines if line.startswith("dvc exp ")]
    assert commands and not [line for line in commands if "--dry" in line]  # plans cannot be dry
    for command in commands:
        project.run(*shlex.split(command))
    assert project.changed_in_dvc() == set()


def _metrics_of(project: Project, revision: str) -> str:
    found = project.git("for-each-ref", "--format=%(refname)", f"refs/exps/**/{revision}")
    return project.git("show", f"{found.strip() or revision}:reports/{NAME}/metrics.json")


def said(project: Project, *command: str) -> Any:
    answer = project.run("dvc", *command, "--json")  # and a warning behind it
    return json.JSONDecoder().raw_decode(answer)[0]


def test_metrics_and_parameters_are_compared_across_commits(changed: Project) -> None:
    differences = said(changed, "metrics", "diff", "HEAD~1")
    assert differences.keys() == {f"reports/{NAME}/metrics.json"}
    (of_file,) = differences.values()
    assert of_file and all(key.startswith("mmd") for key in of_file)
    parameters = said(changed, "params", "diff", "HEAD~1")[f"reports/{NAME}/params.yaml"]
    assert set(parameters) == {"evaluate.mmd.bandwidths"}


def test_results_of_experiments_that_do_not_run_here_are_shown(project: Project) -> None:
    (project.root / "reports/digits").mkdir()
    project.append("reports/digits/metrics.json", '{"frechet": 1.5}')
    project.append("reports/digits/params.yaml", "name: digits\n")
    assert "reports/digits/metrics.json" in said(project, "metrics", "show")[""]["data"]
    refused = project.run("ocm", "sync", "toy_mog40", fails=True)
    assert "toy_mog40: DVC records only active experiments; list them in params/active" in refused


def test_sync_refuses_what_is_not_up_to_date(project: Project) -> None:
    lock = (project.root / "dvc.lock").read_text()
    project.edit(WIDER)
    refused = project.run("ocm", "sync", fails=True)
    assert f"artifacts/{NAME}/evaluate/mmd/all: stale: made with other parameters" in refused
    assert f"artifacts/{NAME}/train/heads" not in refused
    assert "nothing was recorded" in refused
    assert (project.root / "dvc.lock").read_text() == lock


def test_another_active_experiment_is_another_row_of_the_matrix(project: Project) -> None:
    (project.root / "params/active.yaml").write_text(f"active: [{NAME}, toy_mog40]\n")
    assert "train@toy_mog40" in project.run("dvc", "stage", "list", "--all")
    assert project.changed_in_dvc() >= {"train@toy_mog40"}


def test_a_misspelt_key_stops_every_tool(project: Project) -> None:
    before = project.digests()
    project.edit({"report": {"titel": "Edited"}})
    for command in ("snakemake --dry-run", "dvc repro", "ocm status"):
        refused = project.run(*command.split(), fails=True)
        assert re.search(rf"{OVERLAY}: report\.titel.* did you mean '(report\.)?title'", refused)
    assert project.digests() == before


def test_a_group_counts_like_the_overlay_and_a_new_experiment_can_be_run(project: Project) -> None:
    project.edit({"evaluate": {"mmd": {"bandwidths": [0.5]}}}, "params/base/mixture.yaml")
    assert project.stale_in_snakemake() == {"mmd/all", "report/all"}
    assert project.changed_in_dvc() == {"plan"}
    overlay = f"# @package _global_\ndefaults: [{NAME}]\nreport: {{title: Mine}}\n"
    (project.root / "params/experiment/mine.yaml").write_text(overlay)
    plan = project.run("snakemake", "--dry-run", "reports/mine.html", "--quiet", "host")
    assert "output: reports/mine.html" in plan
    smoke = project.run("snakemake", "--dry-run", "reports/mine_smoke.html", "--quiet", "host")
    assert "artifacts/mine_smoke/train/heads/trained" in smoke


def test_a_result_that_was_deleted_is_made_again(project: Project) -> None:
    again = [("snakemake", "--cores", "1"), ("ocm", "run", "report", NAME)]
    files = (f"reports/{NAME}.html", f"reports/{NAME}/results.csv")
    for file, command in zip(files, again, strict=True):
        (project.root / file).unlink()
        assert project.stale_in_snakemake() == project.stale_in_status() == {"report/all"}
        assert project.states()["report/all"] == f"stale: {file} is missing"
        project.run(*command)
        assert (project.root / file).exists()


def test_a_deleted_artifact_whose_page_is_there_is_not_forgotten(project: Project) -> None:
    shutil.rmtree(project.folder("heads/trained"))
    assert project.states()["heads/trained"] == "missing"
    assert project.states()["sample/all"].startswith("stale: heads/trained is missing")
    assert "Nothing to be done" in project.run("snakemake", "--dry-run", f"reports/{NAME}.html")
    said = project.run("ocm", "status").splitlines()[-1]
    manifest = project.folder("heads").relative_to(project.root) / "trained/manifest.json"
    assert said == f"`snakemake --cores all {manifest}` makes what is missing behind a page"
    assert project.changed_in_dvc() >= {"train"}
    refused = project.run("ocm", "sync", fails=True)
    assert "heads/trained: missing" in refused
    assert f"run `snakemake --cores all {manifest} reports/{NAME}.html`" in refused
    shutil.rmtree(project.folder("report/all"))
    shutil.rmtree(project.folder("mmd/all"))  # comes along with the report
    assert "mmd" not in project.run("ocm", "status").splitlines()[-1]
    *_, hint = project.run("ocm", "status").splitlines()
    project.run(*shlex.split(hint.partition("`")[2].partition("`")[0].replace(" all ", " 1 ")))
    assert project.stale_in_status() == set()
