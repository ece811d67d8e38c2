"""The rules say what the table says, for every experiment."""

from __future__ import annotations

import re
import sys

import pytest

from ocm_core.params.document import read_yaml, validate
from ocm_core.params.resolved import resolved_file
from ocm_core.pipeline import table
from tests.pipeline.conftest import Project

JOB = re.compile(r"\n(?:local)?rule (\w+):\n((?:    .*\n)+)")


def planned(project: Project, name: str) -> dict[str, tuple[str, set[str]]]:
    """By task: the rule's name and the manifests that it waits for."""
    plan = project.run("snakemake", "--dry-run", "--forceall", f"reports/{name}.html")
    found = {}
    for rule, body in JOB.findall(plan):
        lines = dict(line.strip().split(": ", 1) for line in body.splitlines() if ": " in line)
        made = re.search(rf"artifacts/{name}/(\S+)/manifest\.json", lines["output"])
        assert made
        found[made[1]] = (rule, set(re.findall(r"\S+/manifest\.json", lines.get("input", ""))))
    return found


@pytest.mark.parametrize("name", ["toy_mog9", "toy_mog40"])
def test_every_task_has_its_rule_and_its_inputs(empty: Project, name: str) -> None:
    experiment = validate(read_yaml(empty.root / resolved_file(name)), resolved_file(name))
    expected = {
        str(task): (
            task.stage,
            {f"artifacts/{name}/{node}/manifest.json" for node in table.inputs(experiment, task)},
        )
        for task in table.tasks(experiment)
    }
    assert planned(empty, name) == expected


def test_every_stage_has_one_rule(empty: Project) -> None:
    rules = empty.run("snakemake", "--list-rules").split()
    assert [rules.count(stage.name) for stage in table.STAGES] == [1] * len(table.STAGES)


def test_the_graph_is_built_without_torch(empty: Project) -> None:
    code = (
        "import sys; from snakemake.cli import main\n"
        "try: main(['--dry-run', '--quiet'])\n"
        "except SystemExit as end: assert not end.code\n"
        "assert 'ocm_core.pipeline.table' in sys.modules and 'torch' not in sys.modules"
    )
    empty.run(sys.executable, "-c", code)
