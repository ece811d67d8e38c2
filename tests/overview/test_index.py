"""The index names the best methods of each experiment, and links to pages that exist."""

from __future__ import annotations

from pathlib import Path

import pytest

from ocm_core.cli import main
from ocm_core.compare.recorded import RecordedExperiment, recorded
from ocm_core.compare.revisions import WorkingTree
from ocm_core.overview.best import Best, best
from ocm_core.overview.page import Entry, entries, render
from tests.report.markup import ATTACK, Elements, assert_ids_are_unique

ROOT = Path(__file__).resolve().parents[2]


def test_methods_within_noise_share_the_place() -> None:
    numbers = {
        **{("fid", "ddpm", m, "K5"): v for m, v in (("npr", 3.1), ("ocm", 3.0), ("beta", 9.0))},
        **{("fid_std", "ddpm", m, "K5"): 0.2 for m in ("npr", "ocm", "beta")},
        **{("nll_bpd", "ddpm", m, "K5"): v for m, v in (("npr", 5.01), ("ocm", 5.0))},
        **{("fid", "ddim", m, "K5", "cfg1.5"): v for m, v in (("delta", 1.0), ("ocm", 2.0))},
        ("recall", "ddpm", "ocm", "K5"): 0.1,
    }
    rows = best(RecordedExperiment(numbers, {("sample", "seeds"): [0, 1, 2, 3]}), {})
    found = {(row.metric, row.sampler): dict(row.cells) for row in rows}
    assert found == {
        ("fid", "ddpm"): {"K5": Best(("ocm", "npr"), 3.0)},
        ("nll_bpd", "ddpm"): {"K5": Best(("ocm",), 5.0)},
        ("fid", "ddim"): {"K5 cfg1.5": Best(("delta",), 1.0)},
    }


def test_samplers_that_step_alike_share_a_row() -> None:
    numbers = {
        ("fid", s, m, "K5"): v for s, m, v in (("ddpm", "ocm", 2.0), ("probes", "hundred", 1.0))
    }
    (row,) = best(RecordedExperiment(numbers, {}), {"ddpm": "ddpm", "probes": "ddpm"})
    assert row.sampler == "ddpm" and dict(row.cells) == {"K5": Best(("hundred",), 1.0)}
    (digits,) = [entry for entry in entries(ROOT) if entry.name == "digits"]
    assert not any("PROBES" in name for name, _ in digits.rows)


def test_the_committed_numbers_have_a_best_method_everywhere() -> None:
    numbers = recorded(WorkingTree(ROOT), "toy_mog9").numbers
    for row in best(recorded(WorkingTree(ROOT), "toy_mog9"), {}):
        for where, cell in row.cells.items():
            rivals = {
                key[2]: value
                for key, value in numbers.items()
                if key[:2] == (row.metric, row.sampler) and key[-1] == where
            }
            assert len(rivals) > 5
            assert cell.value == min(rivals.values()) == rivals[cell.methods[0]]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in ("toy_mog9", "toy_mog40"):
        for file in (f"reports/{name}.metrics.json", f"params/resolved/{name}.yaml"):
            (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / file).write_text((ROOT / file).read_text())
    (tmp_path / "reports/toy_mog9.html").write_text("a page")
    (tmp_path / "params/resolved/digits.yaml").write_text("name: digits\n")  # no numbers
    return tmp_path


def test_the_index_links_to_what_exists(tree, monkeypatch, capsys):
    monkeypatch.chdir(tree)
    monkeypatch.setattr("ocm_core.cli._check_place", lambda: None)
    assert main(["index"]) == 0
    assert capsys.readouterr().out == "reports/index.html: toy_mog40, toy_mog9\n"
    html = (tree / "reports/index.html").read_text()
    links = {attributes["href"] for attributes in Elements(html).having("a")}
    assert links == {"#main", "#toy_mog9", "#toy_mog40", "toy_mog9.html"}
    assert_ids_are_unique(html)
    assert len(html) < 50_000


def test_markup_in_titles_stays_text():
    plain, attacked = (
        Elements(render([Entry("a", text, text, None, ("K5",), ((text, (None,)),))])).tags
        for text in ("x", ATTACK)
    )
    assert attacked == plain


def test_no_numbers_yet(tmp_path):
    assert entries(tmp_path) == []
    assert "no numbers yet" in render([])
