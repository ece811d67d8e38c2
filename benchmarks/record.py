"""`reports/benchmarks.json`: what was measured, by name; a run of some replaces only theirs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from benchmarks.interface import Outcome

FILE = Path("reports/benchmarks.json")
PAGE = FILE.with_suffix(".html")


def read(file: Path = FILE) -> dict[str, Outcome]:
    if not file.exists():
        return {}
    return {name: Outcome(**entry) for name, entry in json.loads(file.read_text()).items()}


def write(found: Mapping[str, Outcome], file: Path = FILE) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(as_json(found) + "\n", encoding="utf-8")


def as_json(found: Mapping[str, Outcome]) -> str:
    entries = {name: asdict(outcome) for name, outcome in found.items()}
    return json.dumps(entries, indent=1, ensure_ascii=False, allow_nan=False)
