"""The rules say what the table says, for every experiment."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from ocm_core.params.compose import experiment_names
from ocm_core.params.document import read_yaml, validate
from ocm_core.params.resolved import resolved_file
from ocm_core.pipeline import table
from ocm_core.pipeline.gpus import VISIBLE
from ocm_core.schema.experiment import Experiment
from tests.pipeline.conftest import Project

JOB = re.compile(r"\nrule (\w+):\n((?:    .*\n)+)")
MANIFEST = re.compile(r"artifacts/\w+/(\S+)/manifest\.json")
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
    plan = project.run("snakemake", "--dry-run", "--forceall", f"reports/{name}.html", *options)
    jobs = {}
    for rule, body in JOB.findall(plan):
        said = dict(line.strip().split(": ", 1) for line in body.splitlines() if ": " in line)
        made = MANIFEST.search(said["output"])
        assert made
        sizes = dict(re.findall(r"(mem_mb|runtime|gpu)=(\d+)", said["resources"]))
        jobs[made[1]] = Planned(
            rule,
            inputs=set(MANIFEST.findall(said.get("input", ""))),
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
    return Planned(stage.name, {str(node) for node in before}, stage.priority, resources)


@pytest.mark.parametrize("name", experiment_names())
def test_every_task_has_its_rule_its_inputs_and_its_resources(bench: Project, name: str) -> None:
    experiment = experiment_of(bench, name)
    assert announced(bench, name) == {
        str(task): tabulated(experiment, task, per_job=1) for task in table.tasks(experiment)
    }


def test_the_checkpoint_is_fetched_before_all_else(empty: Project) -> None:
    jobs = announced(empty, "imagenet256")
    assert "fetch_score/all" in jobs["fetch_vae/all"].inputs & jobs["fetch_data/all"].inputs


@pytest.mark.parametrize(
    ("options", "gpus"),
    [
        ((), {"heads": 0, "moments": 0, "report": 0}),
        (("--profile", "profiles/gpu"), {"heads": 1, "moments": 1, "report": 0}),
        (("--config", "gpus_per_job=2"), {"heads": 2, "moments": 1, "report": 0}),
        (("--set-resources", "heads:gpu=2"), {"heads": 2, "moments": 0, "report": 0}),
    ],
)
def test_who_says_how_many_gpus(
    empty: Project, options: tuple[str, ...], gpus: dict[str, int]
) -> None:
    without = Project(empty.root)
    without.env |= {VISIBLE: ""}
    jobs = announced(without, "toy_mog9", *options).values()
    assert gpus.items() <= {job.rule: job.resources["gpu"] for job in jobs}.items()


def test_jobs_take_the_gpus_of_the_machine_in_turns(bench: Project) -> None:
    jobs = announced(bench, "toy_mog9", "--set-resources", "heads:gpu=8").values()
    assert {job.resources["gpu"] for job in jobs if job.rule == "heads"} == {4}


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
