"""A name means one thing: no public type of `ocm_core` is defined in two modules."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[1]
PLUG_INS = {("Method", "covariance"), ("Config", "networks")}  # one in every file


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
    excepted: dict[str, int] = defaultdict(int)
    for file in sorted((ROOT / "ocm_core").rglob("*.py")):
        for name in definitions(file.read_text()):
            if (name, file.parent.name) in PLUG_INS:
                excepted[name] += 1
            else:
                places[name].append(str(file.relative_to(ROOT)))
    assert {"Experiment", "Sampler", "TimestepsParams"} <= places.keys()  # classes and aliases
    assert {name: where for name, where in places.items() if len(where) > 1} == {}
    assert all(excepted[name] > 2 for name, _ in PLUG_INS)
