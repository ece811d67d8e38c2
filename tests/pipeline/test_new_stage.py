"""A new stage, that of docs/adding.md, is one file and a line of parameters; the rest follows."""

import csv
import json
import re
from pathlib import Path

import pytest

from tests.pipeline.conftest import NAME, ROOT, Project

PAGE = (ROOT / "docs/adding.md").read_text()
FILE = "ocm_core/stages/brightness.py"
(STAGE,) = re.findall(rf"`{FILE}`\n```python\n(.*?)```", PAGE, re.DOTALL)


class Extended(Project):
    """With code of its own, which only processes of its own have imported."""

    def states(self, name: str = NAME) -> dict[str, str]:
        return json.loads(self.run("ocm", "status", name, "--json"))[name]


@pytest.fixture(scope="module")
def extended(made_by_snakemake: Project, tmp_path_factory: pytest.TempPathFactory) -> Project:
    copied = made_by_snakemake.copy(tmp_path_factory.mktemp("extended") / "project")
    project = Extended(copied.root)
    (project.root / FILE).write_text(STAGE)
    project.edit({"evaluate": {"brightness": {}}})
    return project


def test_it_is_planned_in_both_tools_and_makes_nothing_else_stale(extended: Project) -> None:
    both = {"brightness/all", "report/all"}
    assert extended.stale_in_snakemake() == extended.stale_in_status() == both
    assert extended.states()["brightness/all"] == "missing"
    assert extended.changed_phases() == {"evaluate", "report"}
    assert "brightness" in extended.run("ocm", "doctor", NAME)
    assert "brightness" in extended.run("snakemake", "--list-rules")


def test_its_measure_is_everywhere(extended: Project, tmp_path: Path) -> None:
    """By DVC; tests/docs/test_adding.py has Snakemake make it."""
    project = extended.copy(tmp_path / "project")
    project.run("dvc", "repro")
    project.run("ocm", "sync")
    with (project.root / f"reports/{NAME}/results.csv").open() as stream:
        rows = [row for row in csv.DictReader(stream) if row["measure"] == "brightness"]
    assert len(rows) == 6 and {row["sampler"] for row in rows} == {"ddpm", "ddim"}
    assert "brightness" in json.dumps(project.metrics())
    assert "error of the mean brightness" in (project.root / f"reports/{NAME}.html").read_text()
    assert project.stale_in_snakemake() == project.stale_in_status() == set()
    assert project.changed_in_dvc() == set()


SMUGGLED = "    rows = __import__('importlib').import_module('ocm_core.networks.dit') and []\n"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"network.scores", "sample")', '"network.scores")', "reads sample without declaring it"),
        ("    rows = []\n", SMUGGLED, "stage 'brightness' has loaded ocm_core.networks.dit"),
        (", *sample_tasks(experiment)]", "]", "sample/all is not among the inputs of this stage"),
    ],
    ids=["key", "module", "input"],
)
def test_what_it_does_not_declare_it_cannot_use(
    extended: Project, old: str, new: str, said: str, tmp_path: Path
) -> None:
    project = extended.copy(tmp_path / "project")
    assert STAGE.count(old) == 1
    (project.root / FILE).write_text(STAGE.replace(old, new))
    refused = project.run("ocm", "run", "brightness", NAME, fails=True)
    assert said in refused and (FILE in refused or "declare it" in refused)
    assert not project.folder("brightness/all").exists()
