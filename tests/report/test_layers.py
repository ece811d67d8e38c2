"""The parts of a page depend on those below them only."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import ocm_core.report

ROOT = Path(ocm_core.report.__file__).parent
PART = re.compile(r"^\s*from ocm_core\.report(?:\.(\w+))?[\w.]* import", re.MULTILINE)
BELOW = {
    "page": set(),
    "statistics": set(),
    "figures": {"page", "statistics"},
    "tables": {"page", "statistics"},
    "claims": {"page", "statistics"},
}


@pytest.mark.parametrize("part", BELOW)
def test_a_part_imports_only_those_below_it(part: str) -> None:
    imported = {
        name for file in (ROOT / part).glob("*.py") for name in PART.findall(file.read_text())
    }
    assert imported <= {part, *BELOW[part]}


def test_every_part_is_tested_here() -> None:
    assert {path.parent.name for path in ROOT.glob("*/__init__.py")} == set(BELOW)
