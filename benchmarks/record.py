"""reports/benchmarks.json: outcomes by the name of the benchmark."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from benchmarks.interface import Outcome
from ocm_core.io.atomic import write_text

FILE = Path("reports/benchmarks.json")
PAGE = FILE.with_suffix(".html")


def read(file: Path = FILE) -> dict[str, Outcome]:
    if not file.exists():
        return {}
    return {name: Outcome(**entry) for name, entry in json.loads(file.read_text()).items()}


def write(found: Mapping[str, Outcome], file: Path = FILE) -> None:
    write_text(file, as_json(found) + "\n")


def as_json(found: Mapping[str, Outcome]) -> str:
    entries = {name: asdict(outcome) for name, outcome in found.items()}
    return json.dumps(entries, indent=1, ensure_ascii=False, allow_nan=False)
