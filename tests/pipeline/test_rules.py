"""The rules say what the stages declare; a run tells how long, which page, and of an error once."""

import os
import re
import signal
import sys
import time
from pathlib import Path
from typing import NamedTuple

import pytest

from ocm_core.doctor.machine import host_memory
from ocm_core.launch import VISIBLE
from ocm_core.pipeline.graph import graph_of
from ocm_core.pipeline.stage import Task, stages
from ocm_core.project import experiment_names
from tests.pipeline.conftest import NAME, ROOT, WIDER, Project

JOB = re.compile(r"\nrule (\w+):\n((?:    .*\n)+)")
MANIFEST = re.compile(r"artifacts/(\w+)/(\w+)/(\S+)/manifest\.json")
PAGE = re.compile(r"reports/(\w+)\.html")
TWO = "--resources gpu=2"
NAMES = [name for name in experiment_names() if "toy" not in name]  # which the copy has shrunken
LOCAL = """
from pathlib import Path
from snakemake.api import SnakemakeApi
from snakemake.settings.types import ResourceSettings
with SnakemakeApi() as api:
    flow = api.workflow(resource_settings=ResourceSettings(), snakefile=Path("workflow/Snakefile"))
    flow.list_rules()
    print("memory:", flow._workflow.global_resources["mem_mb"].value)
    print("local:", *flow._workflow._localrules)
"""


class Planned(NamedTuple):
    """A job, as the dry run announces it and as its stage declares it."""

    rule: str
    inputs: set[str]
    gpus: int


def _with_gpus(project: Project, names: str) -> Project:
    """The same repository on a machine with these GPUs."""
    same = Project(project.root)
    same.env |= {VISIBLE: names}
    return same


def announced(project: Project, names: list[str], *options: str) -> dict[str, dict[str, Planned]]:
    """Return by experiment and task what a run of everything would do."""
    shown = ("--dry-run", "--quiet", "host", "--forceall")
    plan = project.run("snakemake", *shown, *(f"reports/{n}.html" for n in names), *options)
    jobs: dict[str, dict[str, Planned]] = {name: {} for name in names}
    for rule, body in JOB.findall(plan):
        said = dict(line.strip().split(": ", 1) for line in body.splitlines() if ": " in line)
        made, page = MANIFEST.search(said["output"]), PAGE.search(said["output"])
        name, task = (made[1], made[3]) if made else (page[1] if page else "", "report/all")
        read = MANIFEST.findall(said.get("input", ""))
        assert {other for other, *_ in read} <= {name}
        size = re.search(r"\bgpu=(\d+)", said["resources"])
        jobs[name][task] = Planned(rule, {t for *_, t in read}, int(size[1] if size else 0))
    return jobs


def declared(name: str, task: Task) -> Planned:
    graph = graph_of(name)
    before = {str(node) for node in [*graph.inputs[task], *graph.before(task)]}
    return Planned(task.stage, before, graph.stage(task).gpus(graph.experiment, 1))


def test_every_task_has_its_rule_its_inputs_and_its_gpus(empty: Project) -> None:
    plans = announced(_with_gpus(empty, "0,1,2,3"), NAMES)
    for name in NAMES:
        expected = {str(task): declared(name, task) for task in graph_of(name).tasks}
        assert plans[name] == expected
    published = plans["imagenet256"]
    assert "fetch_score/all" in published["fetch_vae/all"].inputs
    assert "fetch_score/all" in published["fetch_data/all"].inputs


@pytest.mark.parametrize(
    ("options", "gpus"),
    [
        ("", {"heads": 0, "covariance_error": 0, "report": 0}),
        ("--profile profiles/gpu", {"heads": 1, "covariance_error": 1, "report": 0}),
        (f"{TWO} --config gpus_per_job=2", {"heads": 2, "covariance_error": 1, "report": 0}),
        (f"{TWO} --set-resources heads:gpu=2", {"heads": 2, "covariance_error": 0, "report": 0}),
    ],
)
def test_who_says_how_many_gpus(empty: Project, options: str, gpus: dict[str, int]) -> None:
    jobs = announced(_with_gpus(empty, ""), [NAME], *options.split())[NAME].values()
    assert gpus.items() <= {job.rule: job.gpus for job in jobs}.items()


def test_every_stage_has_one_rule_and_few_run_where_snakemake_does(empty: Project) -> None:
    rules = empty.run("snakemake", "--list-rules").split()
    assert [rules.count(name) for name in stages()] == [1] * len(stages())
    said = empty.run(sys.executable, "-c", LOCAL)
    local = {stage.name for stage in stages().values() if stage.local}
    assert set(said.partition("local: ")[2].split()) == local
    assert f"memory: {host_memory() // 10**6}\n" in said, "jobs side by side have to share it"
    assert local == {name for name in stages() if name.startswith("fetch_")} | {"report"}
    for place in ("train/nonsense/all", "evaluate/heads/trained"):
        target = f"artifacts/{NAME}/{place}/manifest.json"
        assert "MissingRuleException" in empty.run("snakemake", "--dry-run", target, fails=True)


def test_lint_forgives_nothing_but_the_missing_environments(empty: Project, tmp_path: Path) -> None:
    project = empty.copy(tmp_path / "project")
    project.run(sys.executable, "workflow/lint.py")
    silent = '\n\nrule silent:\n    output:\n        "x",\n    shell:\n        "touch {output}"\n'
    project.append("workflow/rules/stages.smk", silent)
    assert "No log directive defined" in project.run(sys.executable, "workflow/lint.py", fails=True)


def test_the_rules_are_short() -> None:
    files = [ROOT / "Snakefile", ROOT / "workflow/Snakefile", *ROOT.glob("workflow/rules/*.smk")]
    assert sum(len(file.read_text().splitlines()) for file in files) <= 200


def test_a_dry_run_is_a_summary_and_a_wrong_name_gets_the_nearest(empty: Project) -> None:
    plan = ("snakemake", "--dry-run", "reports/imagenet256.html")
    said = empty.run(*plan)
    assert len(said.splitlines()) < 60 and re.search(r"\nsample +[3-9]\d\n", said)
    assert "wildcards:" in empty.run(*plan, "--quiet", "host")
    said = empty.run("snakemake", "--cores", "1", "reports/digit.html", fails=True)
    assert "did you mean 'digits'?" in said.splitlines()[-1]
    assert "Traceback" not in said


def test_a_run_says_how_long_it_takes_and_which_page_to_open(project: Project) -> None:
    project.edit(WIDER)
    said = project.run("snakemake", "--cores", "1")
    assert "\n2 jobs, about " in said
    assert (
        "\n    resources:" not in said and "jobid: " in said
    )  # where a job ends, not where it begins
    assert said.splitlines()[-1].startswith("done in ")
    assert said.splitlines()[-1].endswith(f"; open reports/{NAME}.html")


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (("ocm", "run", "score", NAME, "trained", "--log", "score.log"), 130),
        (("snakemake", "--cores", "1"), 1),
    ],
)
def test_ctrl_c_ends_in_one_line(project: Project, command: tuple[str, ...], code: int) -> None:
    project.edit({"train": {"score": {"iterations": 100_000}}})
    # a shell's background job, and what it starts, would ignore Ctrl-C
    listen = {"preexec_fn": lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)}
    process = project.start(*command, **listen)
    staging = project.root / f"artifacts/{NAME}/train/score/.trained.staging"
    while not (staging / "state/training.safetensors").exists():
        assert process.poll() is None
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGINT)  # a terminal sends it to all that run in it
    said = process.communicate()[0]
    told = rf"^ocm: score {NAME} trained: interrupted; resumes at iteration \d+0 of 100000$"
    assert process.returncode == code and len(re.findall(told, said, re.MULTILINE)) == 1, said
    assert "Traceback" not in said and not [*project.root.glob(".snakemake/locks/*")]
