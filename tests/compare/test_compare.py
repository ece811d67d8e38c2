"""`ocm compare` says what DVC's diffs say, and which changes are noise."""

from __future__ import annotations

import json
from math import nan, sqrt
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ocm_core.cli import main
from ocm_core.compare.changes import ChangeVerdict, Number
from ocm_core.compare.recorded import RecordedExperiment, spread_names
from ocm_core.params.resolved import load
from tests.compare import repository
from tests.report.markup import Elements, assert_nothing_is_loaded

SEEDS = len(load(repository.NAME).sample.seeds)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("compared")
    repository.make(folder)
    return folder


@pytest.fixture
def ocm(root, monkeypatch, capsys):
    """The command in that repository; its exit code and what it printed."""
    monkeypatch.chdir(root)
    monkeypatch.setattr("ocm_core.cli._check_place", lambda: None)

    def call(*arguments: str) -> tuple[int, str, str]:
        code = main(["compare", *arguments])
        said = capsys.readouterr()
        return code, said.out, said.err

    return call


def test_dvc_and_we_agree(root, ocm):
    code, said, _ = ocm("HEAD~1", "HEAD", "--json")
    ours = json.loads(said)["experiments"][repository.NAME]
    theirs = repository.dvc_diff(root, "metrics")[repository.METRICS.as_posix()]
    numbers = {
        key: {"old": n["old"], "new": n["new"]}
        for key, n in ours["metrics"].items()
        if n["old"] != n["new"]
    }
    expected = {
        key: {"old": n.get("old"), "new": n.get("new")}
        for key, n in theirs.items()
        if not key.startswith("fid_std.")
    }
    assert code == 0
    assert numbers == expected and len(numbers) == 5
    for key, n in theirs.items():
        if "diff" in n and not key.startswith("fid_std."):
            assert ours["metrics"][key]["diff"] == pytest.approx(n["diff"])
    params = repository.dvc_diff(root, "params")[repository.RESOLVED.as_posix()]
    assert set(params) == {"train.heads.learning_rate"}
    assert {
        key: {side: value for side, value in pair.items() if side in ("old", "new")}
        for key, pair in params.items()
    } == ours["params"]


def test_noise_is_told_from_change(ocm):
    metrics = json.loads(ocm("HEAD~1", "--json")[1])["experiments"][repository.NAME]["metrics"]
    verdicts = {key: number["verdict"] for key, number in metrics.items()}
    assert verdicts == {
        "fid.ddpm.ocm.K5": "beyond noise",
        "fid.ddpm.ocm.K10": "within noise",
        "fid.ddpm.ocm.K25": "unchanged",
        "fid.ddpm.beta.K5": "gone",
        "fid.ddpm.sn.K5": "new",
        "nll_bpd.ddpm.ocm.K5": "no spread recorded",
        "nll_bpd.ddpm.ocm.K10": "unchanged",
    }
    error = sqrt((0.2**2 + 0.3**2) / SEEDS)
    assert metrics["fid.ddpm.ocm.K5"]["error"] == pytest.approx(error)
    assert metrics["nll_bpd.ddpm.ocm.K5"]["error"] is None


def test_a_recorded_standard_error_is_taken_as_it_is():
    key = ("nll_bpd", "ddpm", "ocm", "K5")
    numbers = {key: 5.0, ("nll_bpd_se", *key[1:]): 0.1}
    found = RecordedExperiment(numbers, {("sample", "seeds"): [0, 1]})
    assert found.error(key) == 0.1 and spread_names(numbers) == {"nll_bpd_se"}


def test_the_terminal_shows_what_matters(ocm):
    code, said, _ = ocm("HEAD~1")
    lines = [line.split() for line in said.splitlines()]
    assert code == 0 and said.startswith("HEAD~1 → working tree\n")
    assert ["train.heads.learning_rate", "0.125"] in [[w[0], w[-1]] for w in lines if w]
    marks = {tuple(words[:4]): " ".join(words[-2:]) for words in lines if "ddpm" in words}
    assert marks == {
        ("fid", "ddpm", "ocm", "K5"): "beyond noise",
        ("nll_bpd", "ddpm", "ocm", "K5"): "spread recorded",
        ("fid", "ddpm", "sn", "K5"): "6 new",
        ("fid", "ddpm", "beta", "K5"): "9 gone",
    }
    assert "(-12.5%)" in said
    everything = ocm("HEAD~1", "--all")[1]
    assert sum("ddpm" in line for line in everything.splitlines()) == 7


def test_nothing_differs(ocm):
    code, said, _ = ocm()
    assert (code, said) == (0, "HEAD → working tree: no number and no parameter differs\n")


@pytest.fixture
def edit(root):
    """Change, write or remove (None) a file of the working tree until the test ends."""
    kept = {}

    def change(file: Path, text: str | None) -> None:
        kept.setdefault(root / file, (root / file).read_text())
        (root / file).unlink() if text is None else (root / file).write_text(text)

    yield change
    for file, text in kept.items():
        file.write_text(text)


def rate(root, value):
    resolved = (root / repository.RESOLVED).read_text()
    assert "learning_rate: 0.125" in resolved
    return resolved.replace("learning_rate: 0.125", f"learning_rate: {value}")


def test_parameters_changed_and_nothing_was_rerun(root, ocm, edit, tmp_path):
    """421 unchanged numbers are no effect of the change."""
    edit(repository.RESOLVED, rate(root, 0.25))
    said = ocm()[1]
    assert "digits: 6 numbers from before (made with other train.heads): 6 unchanged" in said
    assert "train.heads.learning_rate" in said
    assert json.loads(ocm("--json")[1])["experiments"][repository.NAME]["numbers"] == (
        "stale: made with other train.heads"
    )
    ocm("--page", str(tmp_path / "page.html"))
    assert "from before (made with other train.heads)" in (tmp_path / "page.html").read_text()


def test_a_changed_title_makes_no_number_old(root, ocm, edit):
    text = (root / repository.RESOLVED).read_text()
    title = load(repository.NAME).report.title
    edit(repository.RESOLVED, text.replace(f"title: {title}", "title: Another"))
    said = ocm()[1]
    assert "report.title" in said and "from before" not in said


def test_numbers_of_other_sources_are_from_before(root, ocm, edit):
    made = json.loads((root / repository.PROVENANCE).read_text())
    edit(repository.PROVENANCE, json.dumps(made | {"sources": "0" * 16}))
    said = ocm()[1]
    assert said.startswith("HEAD → working tree: no number and no parameter differs\n")
    assert "numbers from before (made with other sources): digits" in said


def test_numbers_of_unknown_making_are_from_before(root, ocm, edit):
    edit(repository.PROVENANCE, None)
    edit(repository.RESOLVED, rate(root, 0.25))
    assert "digits: 6 numbers from before (nothing says what made them): 6 unchanged" in ocm()[1]


def test_a_commit_is_asked_for_its_parameters_and_not_for_its_sources(root, ocm):
    ours = json.loads(ocm("HEAD~1", "HEAD", "--json")[1])["experiments"][repository.NAME]
    assert ours["numbers"] == "current"


def test_the_page_stands_alone(ocm, tmp_path):
    file = tmp_path / "pages/difference.html"
    assert ocm("HEAD~1", "HEAD", "--page", str(file))[0] == 0
    own = file.read_text()
    assert len(own) < 50_000  # no charts, no Plotly
    assert_nothing_is_loaded(own)
    assert len(Elements(own).having("table")) == 2
    assert "beyond noise" in own and "train.heads.learning_rate" in own


@pytest.mark.parametrize("revision", ["nowhere", "HEAD~99", "HEAD:reports", "--help-me"])
def test_an_unknown_revision_is_named(ocm, revision):
    code, _, said = ocm("--", revision)
    assert code == 1
    assert repr(revision) in said and "git log" in said


def test_a_broken_file_is_named(root, ocm):
    file = root / repository.METRICS
    whole = file.read_text()
    try:
        file.write_text(whole[:-20])
        code, _, said = ocm("HEAD")
    finally:
        file.write_text(whole)
    assert code == 1 and f"{repository.METRICS} of working tree" in said


finite = st.floats(-1e6, 1e6)


@given(finite, finite, st.floats(0, 1e6))
def test_a_verdict_does_not_depend_on_the_order(a, b, error):
    assume(a != b)
    forth, back = Number(("m",), a, b, error), Number(("m",), b, a, error)
    assert forth.verdict is back.verdict
    assert forth.share == back.share and 0 < forth.share <= 2
    assert (forth.verdict is ChangeVerdict.BEYOND) == (abs(b - a) > 2 * error)
    assert Number(("m",), a, b, nan).verdict is ChangeVerdict.UNKNOWN
