"""Digests of what made an experiment's results, to tell later whether they are up to date.

They count what decides the numbers and no more: the evaluations and all that they rest on. A page's
title or layout makes no number stale.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

from ocm_core.io.reading import read_json_object
from ocm_core.params.restrict import values
from ocm_core.pipeline.artifacts import text_digest
from ocm_core.pipeline.graph import Graph
from ocm_core.pipeline.sources import digest
from ocm_core.pipeline.state import MISSING, UP_TO_DATE

FILE = "provenance.json"
_DIGITS = 16


def number_digests(graph: Graph) -> dict[str, Any]:
    """Return a digest per parameter key, and one of the code, of all that decides the numbers."""
    tasks = graph.ancestry(graph.of_phase("evaluate"))
    keys = {key for task in tasks for key in graph.keys(task)}
    whole = {key for key in keys if not any(key.startswith(f"{other}.") for other in keys)}
    files = {file for task in tasks for file in graph.source_files(task)}
    return {
        "parameters": {k: _short(v) for k, v in values(graph.experiment, whole).items()},
        "sources": digest(sorted(files))[:_DIGITS],
    }


def last_commit(graph: Graph) -> str | None:
    """Return the last commit that changed the code or the overlay; None outside of a checkout."""
    tasks = graph.ancestry(graph.of_phase("evaluate"))
    files = {str(file) for task in tasks for file in graph.source_files(task)}
    command = ["git", "log", "-1", "--format=%h", "--abbrev=12", "--", *sorted(files)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() or None


def results_state(graph: Graph, reports: Path) -> str:
    """Return `up to date`, `missing`, or `stale: why` for the results in `reports/NAME/`."""
    file = reports / graph.experiment.name / FILE
    if not file.exists():
        return MISSING
    recorded = read_json_object(file, "restore it from Git, or run the experiment")
    now, then = number_digests(graph), recorded.get("parameters")
    then = then if isinstance(then, dict) else {}
    changed = [key for key, value in now["parameters"].items() if then.get(key) != value]
    reasons = [f"made with other {', '.join(changed)}"] if changed else []
    if recorded.get("sources") != now["sources"]:
        reasons.append("made with other sources")
    return f"stale: {'; '.join(reasons)}" if reasons else UP_TO_DATE


def _short(value: object) -> str:
    return text_digest(value)[:_DIGITS]
