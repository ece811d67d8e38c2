"""The rules say what the table says, for every experiment."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from ocm_core.cli import main
from ocm_core.params.compose import experiment_names
from ocm_core.params.document import read_yaml, validate
from ocm_core.params.resolved import resolved_file
from ocm_core.pipeline import table
from ocm_core.pipeline.gpus import VISIBLE
from ocm_core.schema.experiment import Experiment
from tests.pipeline.conftest import Project

JOB = re.compile(r"\nrule (\w+):\n((?:    .*\n)+)")
MANIFEST = re.compile(r"artifacts/(\w+)/(\S+)/manifest\.json")
TWO = "--resources gpu=2"
LOCAL = """
from pathlib import Path
from snakemake.api import SnakemakeApi
from snakemake.settings.types import ResourceSettings
with SnakemakeApi() as api:
    flow = api.workflow(resource_settings=ResourceSettings(), snakefile=Path("Snakefile"))
    flow.list_rules()
    print("local:", *flow._workflow._localrules)
"""


class Planned(NamedTuple):
    """A job, as the dry run announces it and as the table has it."""

    rule: str
    inputs: set[str]
    priority: int
    resources: dict[str, int]


@pytest.fixture(scope="module")
def bench(empty: Project) -> Project:
    """The same repository on a machine with four GPUs."""
    project = Project(empty.root)
    project.env |= {VISIBLE: "0,1,2,3"}
    return project


def experiment_of(project: Project, name: str) -> Experiment:
    return validate(read_yaml(project.root / resolved_file(name)), resolved_file(name))


def announced(project: Project, name: str, *options: str) -> dict[str, Planned]:
    """By task, what a run of everything would do."""
    return all_announced(project, [name], *options)[name]


def all_announced(
    project: Project, names: Sequence[str], *options: str
) -> dict[str, dict[str, Planned]]:
    """By experiment and task."""
    shown = ("--dry-run", "--quiet", "host", "--forceall")
    plan = project.run("snakemake", *shown, *(f"reports/{n}.html" for n in names), *options)
    jobs: dict[str, dict[str, Planned]] = {name: {} for name in names}
    for rule, body in JOB.findall(plan):
        said = dict(line.strip().split(": ", 1) for line in body.splitlines() if ": " in line)
        made = MANIFEST.search(said["output"])
        assert made
        sizes = dict(re.findall(r"\b(mem_mb|runtime|gpu)=(\d+)", said["resources"]))
        read = MANIFEST.findall(said.get("input", ""))
        assert {name for name, _ in read} <= {made[1]}
        jobs[made[1]][made[2]] = Planned(
            rule,
            inputs={task for _, task in read},
            priority=int(said.get("priority", 0)),
            resources={key: int(size) for key, size in sizes.items()},
        )
    return jobs


def tabulated(experiment: Experiment, task: table.Task, per_job: int) -> Planned:
    stage = table.BY_NAME[task.stage]
    before = [*table.inputs(experiment, task), *table.after(experiment, task)]
    resources = {
        "mem_mb": stage.resources.memory,
        "runtime": stage.resources.minutes,
        "gpu": stage.gpus(experiment, per_job),
    }
    priority = stage.priority(experiment, task.part)
    return Planned(stage.name, {str(node) for node in before}, priority, resources)


@pytest.fixture(scope="module")
def plans(bench: Project) -> dict[str, dict[str, Planned]]:
    return all_announced(bench, experiment_names())


@pytest.mark.parametrize("name", experiment_names())
def test_every_task_has_its_rule_its_inputs_and_its_resources(
    bench: Project, plans: dict[str, dict[str, Planned]], name: str
) -> None:
    experiment = experiment_of(bench, name)
    assert plans[name] == {
        str(task): tabulated(experiment, task, per_job=1) for task in table.tasks(experiment)
    }


def test_the_checkpoint_is_fetched_before_all_else(plans: dict[str, dict[str, Planned]]) -> None:
    jobs = plans["imagenet256"]
    assert "fetch_score/all" in jobs["fetch_vae/all"].inputs & jobs["fetch_data/all"].inputs


@pytest.mark.parametrize(
    ("options", "gpus"),
    [
        ("", {"heads": 0, "evaluate_covariance": 0, "report": 0}),
        ("--profile profiles/gpu", {"heads": 1, "evaluate_covariance": 1, "report": 0}),
        (f"{TWO} --config gpus_per_job=2", {"heads": 2, "evaluate_covariance": 1, "report": 0}),
        (f"{TWO} --set-resources heads:gpu=2", {"heads": 2, "evaluate_covariance": 0, "report": 0}),
    ],
)
def test_who_says_how_many_gpus(empty: Project, options: str, gpus: dict[str, int]) -> None:
    jobs = announced(_without_gpus(empty), "toy_mog9", *options.split()).values()
    assert gpus.items() <= {job.rule: job.resources["gpu"] for job in jobs}.items()


@pytest.mark.parametrize("more", ["--set-resources heads:gpu=2", "--config gpus_per_job=2"])
def test_gpus_that_are_not_there_are_refused_before_work(empty: Project, more: str) -> None:
    command = ("snakemake", "--dry-run", "reports/toy_mog9.html", *more.split())
    said = _without_gpus(empty).run(*command, fails=True)
    assert f"ocm: {more}: there are 0; with more, say so by --resources gpu=2" in said


def _without_gpus(project: Project) -> Project:
    without = Project(project.root)
    without.env |= {VISIBLE: ""}
    return without


def test_jobs_take_the_gpus_of_the_machine_in_turns(
    bench: Project, plans: dict[str, dict[str, Planned]]
) -> None:
    jobs = announced(bench, "toy_mog9", "--set-resources", "heads:gpu=4").values()
    assert {job.rule: job.resources["gpu"] for job in jobs} == {
        job.rule: 4 if job.rule == "heads" else job.resources["gpu"]
        for job in plans["toy_mog9"].values()
    }


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("heads:gpu=8",), "heads:gpu=8: there are 4"),
        (("encode:gpu=2",), "encode:gpu=2: this stage is done by one process"),
        (("heads:gpu=4", "heads:nodes=3"), "heads:gpu=4 heads:nodes=3: each node"),
    ],
)
def test_what_cannot_be_given_is_said_before_work(
    bench: Project, options: tuple[str, ...], said: str
) -> None:
    command = ("snakemake", "--dry-run", "reports/toy_mog9.html", "--set-resources", *options)
    assert f"ocm: --set-resources {said}" in bench.run(*command, fails=True)


def test_the_profile_of_a_cluster_asks_for_what_the_cost_model_says(
    empty: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    """imagenet256, eight GPUs for each stage that can use them: jobs, GPUs, hours and memory."""
    cluster = ("--profile", "profiles/slurm", "--config", "gpus_per_job=8")
    elsewhere = Project(empty.root)
    elsewhere.env |= {"SLURM_CONF": "/nowhere"}  # nobody here knows what its nodes have
    asked = {
        task: (job.resources["gpu"], job.resources["mem_mb"], job.resources["runtime"])
        for task, job in announced(elsewhere, "imagenet256", *cluster).items()
    }
    told = _cost(capsys, "--jobs", "--gpus", "8", "--gpus-per-job", "8")["jobs"]
    limit = read_yaml(empty.root / "profiles/slurm/cluster.yaml")["longest_job"]
    assert asked == {
        task: (job["gpus"], job["memory_mb"], min(job["minutes"], limit))
        for task, job in told.items()
    }
    hours = sum(job["gpus"] * job["hours"] for job in told.values())
    stages = _cost(capsys)["stages"]
    assert hours == pytest.approx(sum(s["hours"]["A100 80 GB"]["tf32"] for s in stages), rel=0.01)
    assert asked["heads/published"][1] > 8 * 5_600  # what DiT-XL/2 takes to load, in each process


def _cost(capsys: pytest.CaptureFixture[str], *options: str) -> Any:
    """In this process: what is counted for one answer serves the other."""
    assert main(["cost", "imagenet256", "--json", *options]) == 0
    found = json.loads(capsys.readouterr().out)
    return found.get("experiments", found)["imagenet256"]


def test_every_stage_has_one_rule(empty: Project) -> None:
    rules = empty.run("snakemake", "--list-rules").split()
    assert [rules.count(stage.name) for stage in table.STAGES] == [1] * len(table.STAGES)


def test_what_is_fetched_and_reported_is_not_sent_to_a_cluster(empty: Project) -> None:
    said = empty.run(sys.executable, "-c", LOCAL)
    local = {stage.name for stage in table.STAGES if stage.local}
    assert set(said.partition("local: ")[2].split()) == local
    fetching = {stage.name for stage in table.STAGES if stage.name.startswith("fetch_")}
    assert local == fetching | {"report"}


def test_the_rule_that_all_are_made_from_makes_nothing(empty: Project) -> None:
    for stage in ("stage", "nonsense"):
        target = f"artifacts/toy_mog9/{stage}/all/manifest.json"
        assert "No rule to produce" in empty.run("snakemake", "--dry-run", target, fails=True)


def test_lint_forgives_nothing_but_the_missing_environments(empty: Project, tmp_path: Path) -> None:
    project = empty.copy(tmp_path / "project")
    project.run(sys.executable, "workflow/lint.py")
    with (project.root / "workflow/rules/sample.smk").open("a") as rules:
        rules.write(
            '\n\nrule silent:\n    output:\n        "x",\n    shell:\n        "touch {output}"\n'
        )
    assert "No log directive defined" in project.run(sys.executable, "workflow/lint.py", fails=True)


def test_the_graph_is_built_without_torch(empty: Project) -> None:
    code = (
        "import sys; from snakemake.cli import main\n"
        "try: main(['--dry-run', '--quiet'])\n"
        "except SystemExit as end: assert not end.code\n"
        "assert 'ocm_core.pipeline.table' in sys.modules and 'torch' not in sys.modules"
    )
    empty.run(sys.executable, "-c", code)
