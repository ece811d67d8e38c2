"""docs/tour.md and docs/mathematics.md agree with the code that they describe."""

import ast
import re
from collections import defaultdict
from importlib import import_module
from pathlib import Path
from typing import get_args

from ocm_core import covariance
from ocm_core.diffusion import kernels
from ocm_core.diffusion.schedule import SCHEDULES
from ocm_core.pipeline.artifacts import Artifact
from ocm_core.pipeline.graph import graph_of
from ocm_core.pipeline.stage import Task, stages
from ocm_core.schema.timesteps import TimestepsParams
from tests.pipeline.conftest import ROOT

PACKAGE = ROOT / "ocm_core"
TOUR = (ROOT / "docs/tour.md").read_text()
MATHEMATICS = (ROOT / "docs/mathematics.md").read_text()
MODULES = {  # `stages/heads` → its file; a folder is its `__init__.py`
    file.relative_to(PACKAGE).with_suffix("").as_posix().removesuffix("/__init__"): file
    for file in sorted(PACKAGE.rglob("*.py"))
    if file != PACKAGE / "__init__.py"
}
PLUG_INS = {("Method", "covariance"), ("Config", "networks")}  # one in every file
CONCEPTS = (
    *("experiment", "preset", "stage", "part", "artifact", "manifest", "cell", "recipe"),
    *("timesteps", "nfe", "head", "replicate"),
)


def section(heading: str) -> str:
    return TOUR.split(f"\n## {heading}\n")[1].split("\n## ")[0]


def rows(heading: str) -> list[list[str]]:
    """The cells of the first table of a section."""
    _, _, *body = re.findall(r"^\| (.*) \|$", section(heading), re.MULTILINE)
    cells = ([cell.strip() for cell in re.split(r"(?<!\\)\|", row)] for row in body)
    return [[cell.replace(r"\|", "|") for cell in row] for row in cells]


LINES = [re.findall(r"`([\w/]+)`", folders) for folders, _ in rows("What may import what")]
HEIGHT = {entry: height for height, entries in enumerate(LINES) for entry in entries}


def imported(file: Path) -> set[str]:
    """The modules of this package that a file imports, types and functions included."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "ocm_core":
            inside = "/".join(node.module.split(".")[1:])
            names = {f"{inside}/{alias.name}".lstrip("/") for alias in node.names}
            found |= {name if name in MODULES else inside for name in names}
    return found - {""}


def entry(module: str) -> str:
    """The line of a module: its own, or that of its folder."""
    while module not in HEIGHT:
        assert "/" in module, f"docs/tour.md: what may {module} import?"
        module = module.rpartition("/")[0]
    return module


def test_every_entry_stands_once_and_exists_and_nothing_imports_upwards() -> None:
    named = [name for line in LINES for name in line]
    assert len(named) == len(set(named))
    assert [name for name in named if name not in MODULES] == []
    imports = [(module, other) for module, file in MODULES.items() for other in imported(file)]
    assert ("covariance/interface", "diffusion/denoiser") in imports
    assert [pair for pair in imports if HEIGHT[entry(pair[1])] > HEIGHT[entry(pair[0])]] == []


def test_the_path_to_the_likelihood_is_short_and_real() -> None:
    heading = "From the noise to the number in the report"
    path = re.findall(r"^\d+\. `(\S+\.py)`", section(heading), re.MULTILINE)
    assert 8 <= len(path) <= 10
    graph = graph_of("digits")
    tasks = (Task("likelihood"), Task("report"))
    used = {str(file) for task in tasks for file in graph.source_files(task)}
    assert [file for file in path if f"ocm_core/{file}" not in used] == []


def test_the_table_of_stages_is_that_of_the_code() -> None:
    declared = [[f"`{s.name}`", s.phase, s.about.rstrip(".")] for s in stages().values()]
    assert [row[:3] for row in rows("All stages")] == declared
    for name, *_, artifact in rows("All stages"):
        module = import_module(stages()[name.strip("`")].module)
        assert issubclass(getattr(module, artifact.strip("`")), Artifact)


def test_a_stage_imports_of_another_what_belongs_to_its_artifact() -> None:
    taken = {
        f"{module}: {alias.name}"
        for module, file in MODULES.items()
        if module.startswith("stages/")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("ocm_core.stages.")
        for alias in node.names
    }
    assert len(taken) > 20
    assert [name for name in taken if name.endswith((": run", ": STAGE"))] == []


def test_every_concept_is_defined_once() -> None:
    defined = [word.strip() for row in rows("Concepts") for word in row[0].split(",")]
    assert len(defined) == len(set(defined))
    assert set(CONCEPTS) <= set(defined)


def test_the_mathematics_names_every_choice() -> None:
    rules = get_args(get_args(TimestepsParams)[0])
    names = [rule.model_fields["kind"].default for rule in rules]
    names += [*covariance.available(), *kernels.available(), *SCHEDULES]
    names += [f"{file.stem}.py" for file in (PACKAGE / "metrics").glob("[!_]*.py")]
    assert [name for name in names if f"`{name}`" not in MATHEMATICS] == []


def definitions(source: str) -> set[str]:
    """Return public classes and type aliases of a module; a TypeVar is no type of its own."""
    found = set()
    for statement in ast.parse(source).body:
        match statement:
            case ast.ClassDef(name=name):
                found.add(name)
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                if not isinstance(value, ast.Call) and not name.isupper():
                    found.add(name)
    return {name for name in found if name[0].isupper()}


def test_no_type_is_defined_in_two_modules() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for module, file in MODULES.items():
        for name in definitions(file.read_text()):
            plug_in = (name, file.parent.name) in PLUG_INS
            places[f"{file.parent.name}/{name}" if plug_in else name].append(module)
    assert {"Experiment", "Sampler", "TimestepsParams"} <= places.keys()  # classes and aliases
    several = {name for name, modules in places.items() if len(modules) > 1}
    assert several == {f"{folder}/{name}" for name, folder in PLUG_INS}
