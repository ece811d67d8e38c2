"""A new stage is one new file and a line of parameters; everything else follows from them."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from tests.pipeline.conftest import NAME, Project

STAGE = '''"""Measure how far the mean of the points of every cell is from that of the data."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ocm_core.cells import cells, parts
from ocm_core.pipeline.stage import Stage
from ocm_core.results.measures import Measure
from ocm_core.results.table import Results, Row
from ocm_core.schema.block import Params, Positive
from ocm_core.stages._results import ResultsTable
from ocm_core.stages.encode import encode_tasks, open_split
from ocm_core.stages.sample import Samples, sample_tasks

if TYPE_CHECKING:
    from ocm_core.pipeline.job import Job


class MeanErrorParams(Params):
    """The power that distances are raised to."""

    power: Positive = 1.0


STAGE = Stage(
    __name__,
    "evaluate",
    params=MeanErrorParams,
    takes=lambda experiment, part: [*encode_tasks(experiment), *sample_tasks(experiment)],
    reads=("data", "network.scores", "sample"),
    measures=(Measure("mean_error", "Error of the mean"),),
)


class MeanError(ResultsTable):
    """Rows of the measure `mean_error`."""


def run(job: Job) -> None:
    experiment, settings = job.experiment, STAGE.settings(job.experiment)
    mean = open_split(job, "test").all().mean(0)
    part_of = {cell: name for name, group in parts(experiment).items() for cell in group}
    rows = []
    for cell in cells(experiment):
        drawn = job.take(Samples, part_of[cell]).read(cell)[:].numpy().mean(0)
        error = float(((drawn - mean) ** 2).sum()) ** (settings.power / 2)
        rows.append(Row("mean_error", error, **cell.place))
    MeanError(job.folder).save(Results(rows))
'''
LINE = {"evaluate": {"mean_error": {}}}
FILE = "ocm_core/stages/mean_error.py"


@pytest.fixture(scope="module")
def extended(made_by_snakemake: Project, tmp_path_factory: pytest.TempPathFactory) -> Project:
    project = made_by_snakemake.copy(tmp_path_factory.mktemp("extended") / "project")
    (project.root / FILE).write_text(STAGE)
    project.edit(LINE)
    return project


def test_it_is_planned_in_both_tools_and_makes_nothing_else_stale(extended: Project) -> None:
    assert extended.stale_in_snakemake() == {"mean_error/all", "report/all"}
    assert extended.states()["mean_error/all"] == "missing"
    assert extended.stale_in_status() == {"mean_error/all", "report/all"}
    assert extended.changed_phases() == {"evaluate", "report"}


def test_doctor_and_the_documentation_name_it(extended: Project) -> None:
    assert "mean_error" in extended.run("ocm", "doctor", NAME)
    assert "mean_error" in extended.run("snakemake", "--list-rules")


@pytest.mark.parametrize("tool", ["snakemake --cores 1", "dvc repro"])
def test_both_tools_run_it_and_its_measure_is_everywhere(
    extended: Project, tool: str, tmp_path: Path
) -> None:
    project = extended.copy(tmp_path / "project")
    project.run(*tool.split())
    if tool == "dvc repro":
        project.run("ocm", "sync")
    with (project.root / f"reports/{NAME}/results.csv").open() as stream:
        rows = [row for row in csv.DictReader(stream) if row["measure"] == "mean_error"]
    assert len(rows) == 6 and {row["sampler"] for row in rows} == {"ddpm", "ddim"}
    assert "mean_error" in json.dumps(project.metrics())
    page = (project.root / f"reports/{NAME}.html").read_text()
    assert "Error of the mean" in page
    assert project.stale_in_snakemake() == project.stale_in_status() == set()
    assert project.changed_in_dvc() == set()


def test_it_runs_by_hand_and_its_parameters_are_checked(extended: Project, tmp_path: Path) -> None:
    project = extended.copy(tmp_path / "project")
    project.run("ocm", "run", "mean_error", NAME)
    assert project.states()["mean_error/all"] == "up to date"
    project.edit({"evaluate": {"mean_error": {"powr": 2}}})
    said = project.run("ocm", "status", fails=True)
    assert "evaluate.mean_error.powr" in said and "did you mean" in said


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (
            ('"network.scores", "sample")', '"network.scores")'),
            "stage 'mean_error' reads sample without declaring it",
        ),
        (
            (
                "    rows = []\n",
                "    from importlib import import_module\n    rows = []\n"
                "    import_module('ocm_core.networks.dit')\n",
            ),
            "stage 'mean_error' has loaded ocm_core.networks._",
        ),
        (
            ("*encode_tasks(experiment), *sample_tasks(experiment)", "*encode_tasks(experiment)"),
            "sample/all is not among the inputs of this stage: declare it",
        ),
    ],
    ids=["key", "module", "input"],
)
def test_what_it_does_not_declare_it_cannot_use(
    extended: Project, edit: tuple[str, str], said: str, tmp_path: Path
) -> None:
    project = extended.copy(tmp_path / "project")
    assert STAGE.count(edit[0]) == 1
    (project.root / FILE).write_text(STAGE.replace(*edit))
    refused = project.run("ocm", "run", "mean_error", NAME, fails=True)
    assert said in refused
    assert FILE in refused or "declare it" in refused
    assert not project.folder("mean_error/all").exists()
