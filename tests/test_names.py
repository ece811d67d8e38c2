"""A name means one thing: no public type of `ocm_core` is defined in two modules."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PLUG_INS = {"Method": "ocm_core/covariance", "Config": "ocm_core/networks"}  # one in every file


def definitions(source: str) -> Iterator[str]:
    """Public classes and type aliases of a module; a TypeVar is no type of its own."""
    for statement in ast.parse(source).body:
        match statement:
            case ast.ClassDef(name=name):
                found = name
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                if isinstance(value, ast.Call) or name.isupper():
                    continue
                found = name
            case _:
                continue
        if found[0].isupper():
            yield found


def defined() -> dict[str, list[str]]:
    places: dict[str, list[str]] = {}
    for file in sorted((ROOT / "ocm_core").rglob("*.py")):
        place = file.relative_to(ROOT).as_posix()
        for name in definitions(file.read_text()):
            if PLUG_INS.get(name) != place.rpartition("/")[0]:
                places.setdefault(name, []).append(place)
    return places


def test_no_type_is_defined_in_two_modules() -> None:
    offenders = [
        f"{name}: {', '.join(places)}" for name, places in defined().items() if len(places) > 1
    ]
    assert not offenders, "defined more than once:\n" + "\n".join(offenders)


@pytest.mark.parametrize(("name", "folder"), PLUG_INS.items())
def test_plug_ins_are_what_is_excepted(name: str, folder: str) -> None:
    files = [file for file in (ROOT / folder).glob("*.py") if name in definitions(file.read_text())]
    assert len(files) > 2


def test_what_counts_as_a_definition() -> None:
    source = (
        "class Public: ...\nclass _Private: ...\nAlias = dict[str, int]\nVar = TypeVar('Var')\n"
        "CONSTANT = 3\nlower = int\ndef function(): ...\n"
    )
    assert list(definitions(source)) == ["Public", "Alias"]
