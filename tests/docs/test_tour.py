"""docs/tour.md and docs/mathematics.md are held to the code that they describe."""

from __future__ import annotations

import ast
import re
from graphlib import TopologicalSorter
from pathlib import Path
from typing import get_args

import pytest

from ocm_core import covariance
from ocm_core.diffusion.schedule import SCHEDULES
from ocm_core.params.resolved import load
from ocm_core.pipeline.staleness import source_files
from ocm_core.pipeline.table import STAGES, Task
from ocm_core.schema.chains import ChainParams
from tests.pipeline.conftest import ROOT

PACKAGE = ROOT / "ocm_core"
TOUR = (ROOT / "docs/tour.md").read_text()
MATHEMATICS = (ROOT / "docs/mathematics.md").read_text()
FILES = sorted(PACKAGE.rglob("*.py"))
FOLDERS = {
    path.stem
    for path in PACKAGE.iterdir()
    if path.suffix == ".py" or (path / "__init__.py").exists()
} - {"__init__"}


def rows(heading: str) -> list[list[str]]:
    """The cells of the first table of a section."""
    section = TOUR.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    _, _, *body = re.findall(r"^\|(.*)\|$", section, re.MULTILINE)
    return [[cell.strip() for cell in row.split("|")] for row in body]


def quoted(cell: str) -> list[str]:
    return re.findall(r"`(\w+)`", cell)


LINES = [quoted(folders) for folders, _ in rows("What may import what")]
HEIGHT = {folder: height for height, folders in enumerate(LINES) for folder in folders}


def imported(file: Path) -> set[tuple[str, ...]]:
    """(`diffusion`, `chains`), and so on: what of this package a file imports, types included."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "ocm_core":
            inside = tuple(node.module.split(".")[1:])
            found |= {inside} if inside else {(alias.name,) for alias in node.names}
    return found


def folder_of(file: Path) -> str:
    return file.relative_to(PACKAGE).parts[0].removesuffix(".py")


def edges() -> dict[tuple[str, str], list[str]]:
    """(importing folder, imported folder) → the files that do it."""
    found: dict[tuple[str, str], list[str]] = {}
    for file in FILES:
        own = folder_of(file)
        for name in imported(file) if own != "__init__" else ():
            if name[0] != own:
                found.setdefault((own, name[0]), []).append(str(file.relative_to(ROOT)))
    return found


def test_every_folder_is_on_the_staircase_once() -> None:
    named = [folder for line in LINES for folder in line]
    assert len(named) == len(set(named))
    assert set(named) == FOLDERS


def test_nothing_imports_upwards_or_sideways() -> None:
    wrong = {
        f"{file} imports {other}"
        for (own, other), files in edges().items()
        for file in files
        if HEIGHT[other] >= HEIGHT[own]
    }
    assert wrong == set()


def test_a_changed_staircase_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test above is no tautology: two lines in the wrong order are found."""
    monkeypatch.setitem(HEIGHT, "diffusion", HEIGHT["covariance"])
    with pytest.raises(AssertionError, match=r"covariance/.* imports diffusion"):
        test_nothing_imports_upwards_or_sideways()


def test_packages_have_no_cycle() -> None:
    below: dict[str, set[str]] = {folder: set() for folder in FOLDERS}
    for own, other in edges():
        below[own].add(other)
    order = list(TopologicalSorter(below).static_order())  # raises CycleError
    assert set(order) == FOLDERS


def test_artifacts_and_stages_take_only_the_job_from_the_pipeline() -> None:
    taken = {
        name[1:]
        for file in FILES
        if folder_of(file) in ("artifacts", "stages") and file.name != "_page.py"
        for name in imported(file)
        if name[0] == "pipeline"
    }
    assert taken == {("job",)}


def test_no_stage_imports_another() -> None:
    inside = {
        (file.stem, name[1])
        for file in FILES
        if folder_of(file) == "stages"
        for name in imported(file)
        if name[0] == "stages"
    }
    assert {other for _, other in inside} <= {"_page"}


def test_the_walk_to_the_likelihood_is_short_and_real() -> None:
    section = TOUR.split("## From the noise to the number in the report")[1].split("\n## ")[0]
    walk = re.findall(r"^\d+\. `(\S+\.py)`", section, re.MULTILINE)
    assert 8 <= len(walk) <= 12
    experiment = load("digits")
    stages = ("evaluate_likelihood", "report")
    used = {str(file) for stage in stages for file in source_files(experiment, Task(stage, "all"))}
    assert [file for file in walk if f"ocm_core/{file}" not in used] == []


def test_every_stage_is_there_in_the_order_of_the_table() -> None:
    section = TOUR.split("in the order of the table:")[1].split("\n## ")[0]
    table = re.findall(r"^\| (`.*?) \|", section, re.MULTILINE)
    named = [name for cell in table for name in quoted(cell)]
    assert sorted(named) == sorted(stage.name for stage in STAGES)


@pytest.mark.parametrize("page", [TOUR, MATHEMATICS], ids=["tour", "mathematics"])
def test_every_file_that_is_named_exists(page: str) -> None:
    named = re.findall(r"`((?:[\w]+/)+[\w]+\.(?:py|yaml))`", page)
    assert len(named) > 8
    assert [name for name in named if not any((at / name).exists() for at in (ROOT, PACKAGE))] == []


@pytest.mark.parametrize("page", sorted((ROOT / "docs").glob("*.md")), ids=lambda page: page.stem)
def test_links_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#:]+)\)", page.read_text())
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_the_mathematics_names_every_method_chain_schedule_and_distance() -> None:
    kinds = (chain.model_fields["kind"].default for chain in get_args(get_args(ChainParams)[0]))
    names = [*covariance.available(), *kinds, *SCHEDULES]
    names += [f"{file.stem}.py" for file in (PACKAGE / "metrics").glob("[!_]*.py")]
    names.remove("checks.py")  # of shapes
    assert [name for name in names if f"`{name}`" not in MATHEMATICS] == []
