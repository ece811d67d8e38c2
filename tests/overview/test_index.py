"""The index names the best methods of each experiment, and links to pages that exist."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from ocm_core.cli import main
from ocm_core.compare.recorded import RecordedExperiment, recorded
from ocm_core.compare.revisions import WorkingTree
from ocm_core.errors import OcmError
from ocm_core.overview import result_notes
from ocm_core.overview.best import Best, best
from ocm_core.overview.headlines import HeadlineNumber
from ocm_core.overview.page import Entry, entries, render
from ocm_core.overview.routes import reached_by
from ocm_core.overview.thumbnails import Thumbnail
from ocm_core.params.resolved import load
from ocm_core.pipeline.number_provenance import NumberProvenance
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
    assert not any("LONG" in name for name, _ in digits.rows)


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
    """Parameters of all experiments, numbers of two and a page of one."""
    shutil.copytree(ROOT / "params", tmp_path / "params")
    (tmp_path / "reports").mkdir()
    for name in ("toy_mog9", "toy_mog40"):
        shutil.copy(ROOT / f"reports/{name}.metrics.json", tmp_path / "reports")
    (tmp_path / "reports/toy_mog9.html").write_text("a page")
    return tmp_path


def test_the_index_links_to_what_exists(tree, monkeypatch, capsys):
    monkeypatch.chdir(tree)
    monkeypatch.setattr("ocm_core.cli._check_place", lambda: None)
    assert main(["index"]) == 0
    assert capsys.readouterr().out == "open reports/index.html: toy_mog40, toy_mog9\n"
    html = (tree / "reports/index.html").read_text()
    links = {attributes["href"] for attributes in Elements(html).having("a")}
    assert links == {"#main", "toy_mog9.html"}
    assert_ids_are_unique(html)
    assert len(html) < 50_000
    assert "snakemake --cores 2 reports/toy_mog40.html" in html


def test_a_card_has_a_frontier_three_numbers_and_what_they_are_of() -> None:
    """By hand from the metrics: the lowest distance of ours at ten steps, and recall there."""
    (card,) = [entry for entry in entries(ROOT) if entry.name == "digits"]
    numbers = recorded(WorkingTree(ROOT), "digits").numbers
    solvers = {k for k, s in load("digits").sample.samplers.items() if s.kind == "diffusers"}
    ours = [k for k in numbers if k[0] == "fid" and k[1] not in solvers and k[3] == "K10"]
    lowest = min(ours, key=numbers.__getitem__)
    (_, distance), (_, recall), (_, bits) = card.numbers
    assert (distance.value, distance.route) == (numbers[lowest], ", ".join(lowest[1:3]))
    assert recall.value == numbers[("recall", *lowest[1:])]
    assert distance.usual == numbers["fid", "ddpm", "beta_tilde", "K10"]
    assert bits.value == min(v for k, v in numbers.items() if k[0] == "nll_bpd" and "K10" in k)
    assert card.sketch and [line.kind for line in card.sketch.lines] == ["ours", "solver", "usual"]
    assert all(34 <= x <= 312 and 8 <= y <= 114 for li in card.sketch.lines for x, y in li.points)


def test_the_ends_of_a_sketch_are_plain_numbers() -> None:
    html = render(entries(ROOT), "")
    ends = re.findall(r'<text x="30"[^>]*>([^<]*)</text>', html)
    assert "177" in ends and not [end for end in ends if "e+" in end]


def test_guided_numbers_are_those_of_the_least_scale() -> None:
    found = RecordedExperiment(
        {("fid", "ddim", "ocm", "K10", f"cfg{scale}"): value for scale, value in ((4, 1), (1.5, 2))}
        | {("fid", "ddim", "ocm", "K5"): 3.0},
        {},
    )
    assert [(one.steps, one.value) for one in reached_by(found, "fid")] == [(10, 2), (5, 3.0)]


def test_smoke_tests_stand_apart() -> None:
    shown = [Entry(name, name, "", None, ()) for name in ("a_smoke", "digits")]
    before, _, after = render(shown).partition("<h2>Smoke tests</h2>")
    assert 'id="digits"' in before and 'id="a_smoke"' not in before and 'id="a_smoke"' in after


def test_the_index_and_the_document_say_whose_numbers_are_from_before(tree, monkeypatch, capsys):
    monkeypatch.chdir(tree)
    monkeypatch.setattr("ocm_core.cli._check_place", lambda: None)
    (tree / "ocm_core").symlink_to(ROOT / "ocm_core")
    metrics = tree / "reports/toy_mog9.metrics.json"
    made = NumberProvenance.of(load("toy_mog9"), metrics.read_text())
    metrics.with_name("toy_mog9.provenance.json").write_text(made.text)
    old = {entry.name: entry.old for entry in entries(tree)}
    assert old == {"toy_mog9": "", "toy_mog40": "nothing says what made them"}
    assert render(entries(tree)).count("numbers are from before") == 1

    (tree / "docs").mkdir()
    document = tree / result_notes.FILE
    document.write_text((ROOT / result_notes.FILE).read_text().partition("\n## ")[0])
    assert main(["status", "toy_mog9", "--write"]) == 0
    said = document.read_text()
    assert "- `toy_mog9`: of the present code and parameters\n" in said
    assert "- `toy_mog40`: from before (nothing says what made them)\n" in said
    assert result_notes.untrue(tree) == []
    metrics.write_text(metrics.read_text().replace("0.", "1.", 1))
    assert result_notes.untrue(tree) == ["toy_mog9"]


def test_a_document_without_a_place_for_the_note_is_named(tree):
    (tree / "docs").mkdir()
    (tree / result_notes.FILE).write_text("# Results")
    with pytest.raises(OcmError, match=r"docs/results.md: no lines"):
        result_notes.write(tree)


def test_markup_in_titles_stays_text():
    plain, attacked = (Elements(render([_spelled(text)])).tags for text in ("x", ATTACK))
    assert attacked == plain


def _spelled(text: str) -> Entry:
    number = HeadlineNumber(text, 10, 1.0, text, 2.0)
    rows = ((text, ((text, Best((text,), 1.0)),)),)
    pictures = (Thumbnail(uri=text), Thumbnail(path=text, box=text))
    return Entry(
        "a", text, text, None, rows, old=text, pictures=pictures, numbers=((text, number),)
    )


def test_no_numbers_yet(tmp_path):
    assert entries(tmp_path) == []
    assert "no numbers yet" in render([])
