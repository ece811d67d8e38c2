"""What the documents say is what the repository holds."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from ocm_core.overview import result_notes

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def metric_tables() -> list[tuple[str, str, str, str]]:
    """Tables whose first cell names an experiment and a path into its metrics: `name: path`.

    The first cell of a row is the rest of the path: a method, or a sampler and a method.
    """
    table = re.compile(r"^\| (\w+): ([\w.]+) \|(.*)\n\|[- |]+\n((?:\|.*\n)+)", re.MULTILINE)
    documents = [(ROOT / name).read_text() for name in ("README.md", "docs/results.md")]
    return [match for text in documents for match in table.findall(text)]


@pytest.mark.parametrize(("name", "path", "header", "body"), metric_tables())
def test_figures_are_those_of_the_committed_metrics(
    name: str, path: str, header: str, body: str
) -> None:
    """Of HEAD: a run on another machine may round its own numbers otherwise."""
    shown = ["git", "show", f"HEAD:reports/{name}.metrics.json"]
    text = subprocess.run(shown, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    values = _at(json.loads(text), path.split("."))
    columns = re.findall(r"K = (\d+)(?:, cfg = ([\d.]+))?", header)
    places = [[f"K{steps}", *[f"cfg{scale}"] * bool(scale)] for steps, scale in columns]
    rows = re.findall(r"^\| `([\w.]+)` \| (.*) \|$", body, re.MULTILINE)
    assert len(rows) == len(body.splitlines()) >= 1
    for method, cells in rows:
        for place, cell in zip(places, cells.split(" | "), strict=True):
            decimals = len(cell.partition(".")[2])
            expected = _at(values, [*method.split("."), *place])
            assert cell == f"{expected:.{decimals}f}", (name, path, method, place)


def _at(tree: Any, keys: list[str]) -> Any:
    for key in keys:
        tree = tree[key]
    return tree


def test_no_old_number_is_called_the_present_code_s() -> None:
    """What the note says of old numbers stays true; after a run, or an edit: write it again."""
    wrong = result_notes.untrue(ROOT)
    assert wrong == [], f"numbers from before: {', '.join(wrong)}; run `ocm status --write`"


def test_the_note_speaks_of_every_experiment_with_figures() -> None:
    note = (ROOT / result_notes.FILE).read_text()
    assert [name for name, *_ in metric_tables() if f"\n- `{name}`: " not in note] == []


def test_the_readme_shows_the_default() -> None:
    assert {name for name, *_ in metric_tables()} >= {"digits", "toy_mog9"}


def test_every_folder_that_the_tour_names_exists() -> None:
    first = (ROOT / "docs/tour.md").read_text().split("\n## ")[0]
    table = re.findall(r"^\| (`.*?`) \|", first, re.MULTILINE)
    named = [name for cell in table for name in re.findall(r"`([\w./]+)`", cell)]
    folders = [name for name in named if "/" in name]
    assert "ocm_core/covariance" in folders
    assert [name for name in folders if not (ROOT / name).exists()] == []


@pytest.mark.parametrize("link", re.findall(r"\]\(([^)#:]+)\)", README))
def test_links_lead_somewhere(link: str) -> None:
    assert (ROOT / link).exists()


def test_no_load_can_run_code() -> None:
    """Checkpoints are opened by safetensors, or by torch.load with weights_only=True."""
    tracked = subprocess.run(
        ["git", "ls-files", "*.py", "*.smk", "Snakefile"], cwd=ROOT, capture_output=True, text=True
    ).stdout.split()
    sources = {name: (ROOT / name).read_text() for name in tracked if not name.startswith("tests/")}
    assert len(sources) > 80
    for name, text in sources.items():
        for call in re.findall(r"torch\.load\(.*?\)", text, re.DOTALL):
            assert "weights_only=True" in call, name
        assert not re.search(r"\bpickle\.loads?\(|allow_pickle=True|(?<![.\w])eval\(", text), name


def test_the_timings_are_those_of_the_committed_benchmarks() -> None:
    found = json.loads((ROOT / "reports/benchmarks.json").read_text())
    text = (ROOT / "docs/speed.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \|.*\| ([\d.e-]+) \|[^|]*\| (yes|\*\*no\*\*) \|$", text, re.M)
    assert {name for name, *_ in rows} == set(found)
    for name, shown, holds in rows:
        assert shown == f"{found[name]['ratio']:.3g}" and (holds == "yes") == found[name]["holds"]
