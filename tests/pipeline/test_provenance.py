"""Results are stale once something that decides them has changed, and only then."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ocm_core.errors import OcmError
from ocm_core.params.compose import compose
from ocm_core.pipeline import provenance
from ocm_core.pipeline.graph import Graph
from ocm_core.pipeline.provenance import number_digests, results_state


def written(folder: Path, *overrides: str) -> Path:
    """Leave in a folder what a report of these parameters leaves."""
    graph = Graph(compose("digits", overrides))
    file = folder / "digits" / provenance.FILE
    file.parent.mkdir()
    file.write_text(json.dumps(number_digests(graph)))
    return file


@pytest.mark.parametrize(
    ("override", "state"),
    [
        ("train.heads.learning_rate=0.125", "stale: made with other train.heads"),
        ("methods.rademacher_1.probes=2", "stale: made with other methods.rademacher_1"),
        ("report.title=Another", "up to date"),
    ],
)
def test_what_decides_the_numbers_makes_them_stale(
    override: str, state: str, tmp_path: Path
) -> None:
    written(tmp_path, override)
    assert results_state(Graph(compose("digits")), tmp_path) == state


def test_other_sources_are_noticed_and_the_page_s_are_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: set[str] = set()

    def listening(files: list[Path]) -> str:
        counted.update(map(str, files))
        return "other sources"

    written(tmp_path)
    monkeypatch.setattr(provenance, "digest", listening)
    state = results_state(Graph(compose("digits")), tmp_path)
    assert state == "stale: made with other sources"
    assert {"ocm_core/metrics/frechet.py", "ocm_core/training/loop.py"} <= counted
    assert not [name for name in counted if "/report" in name]


def test_results_that_do_not_exist_are_missing(tmp_path: Path) -> None:
    assert results_state(Graph(compose("digits")), tmp_path) == "missing"


@pytest.mark.parametrize("text", ["", "[]", "{", "3", '{"parameters": 3}', '{"sources": []}'])
def test_a_broken_file_is_named_or_stale(text: str, tmp_path: Path) -> None:
    written(tmp_path).write_text(text)
    try:
        assert results_state(Graph(compose("digits")), tmp_path).startswith("stale")
    except OcmError as error:
        assert "digits/provenance.json" in str(error)
