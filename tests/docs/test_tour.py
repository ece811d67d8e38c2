"""docs/tour.md and docs/mathematics.md are held to the code that they describe."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from ocm_core import covariance
from ocm_core.diffusion.chains import CHAINS
from ocm_core.diffusion.schedule import SCHEDULES
from ocm_core.pipeline.table import STAGES
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


LINES = {line: quoted(folders) for line, folders, _ in rows("What may import what")}
ALLOWED = {
    line: {line, *re.findall(r"\w+", allowed)} for line, _, allowed in rows("What may import what")
}
LINE_OF = {folder: line for line, folders in LINES.items() for folder in folders}


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


@pytest.mark.parametrize("heading", ["Folder by folder", "What may import what"])
def test_every_folder_is_there_once(heading: str) -> None:
    column = 0 if heading == "Folder by folder" else 1
    named = [name for row in rows(heading) for name in quoted(row[column])]
    assert len(named) == len(set(named))
    assert set(named) == FOLDERS


def test_nothing_imports_what_it_may_not() -> None:
    surplus = [
        f"{file.relative_to(ROOT)} imports {'.'.join(name)}"
        for file in FILES
        if (own := folder_of(file)) != "__init__"
        for name in imported(file)
        if LINE_OF[name[0]] not in ALLOWED[LINE_OF[own]]
    ]
    assert surplus == []


def test_the_library_takes_only_types_from_the_parameters() -> None:
    taken = {
        name[1:]
        for file in FILES
        if LINE_OF.get(folder_of(file)) == "library"
        for name in imported(file)
        if name[0] == "params"
    }
    assert taken <= {("schema",), ("data_blocks",), ("block",)}


def test_a_stage_takes_only_the_cells_from_the_pipeline() -> None:
    taken = {
        name[1:]
        for file in FILES
        if folder_of(file) == "stages" and file.name != "_page.py"
        for name in imported(file)
        if name[0] == "pipeline"
    }
    assert taken == {("cells",), ("job",)}  # and the type of what it is given


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
    names = [*covariance.available(), *CHAINS, *SCHEDULES]
    names += [f"{file.stem}.py" for file in (PACKAGE / "metrics").glob("[!_]*.py")]
    names.remove("points.py")  # checks of shapes
    assert [name for name in names if f"`{name}`" not in MATHEMATICS] == []
