"""`ocm compare` between commits of a small repository."""

import json
import subprocess
from pathlib import Path

import pytest
import yaml

from ocm_core.cli import main
from ocm_core.errors import OcmError
from ocm_core.results.compare import ChangeVerdict, compare
from ocm_core.results.table import Results, Row
from tests.results.synthetic import seeds


def git(root: Path, *arguments: str) -> None:
    identity = ("-c", "user.name=test", "-c", "user.email=test@example.org")
    subprocess.run(["git", *identity, *arguments], cwd=root, check=True, capture_output=True)


def put(root: Path, rows: list[Row], rate: float) -> None:
    folder = root / "reports/digits"
    folder.mkdir(parents=True, exist_ok=True)
    Results(rows).write(folder / "results.csv")
    params = {"train": {"rate": rate, "none": None}, "sample": {"seeds": [0, 1, 2]}}
    (folder / "params.yaml").write_text(yaml.safe_dump(params))


def rows(few: list[float], more: list[float], other: str, loss: float) -> list[Row]:
    values = {("ddpm", "ocm", 5): few, ("ddpm", "ocm", 10): more, ("ddpm", other, 5): [9.0]}
    return [*seeds("frechet", values), Row("loss", 1.0, 0.01), Row("loss", loss, method="sn")]


BEFORE = rows([8.0, 8.1, 7.9], [4.0, 4.5, 3.5], "beta", 2.0)
AFTER = rows([7.0, 7.1, 6.9], [4.1, 4.6, 3.6], "sn", 2.5)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    git(tmp_path, "init", "--quiet", "--initial-branch=main")
    (tmp_path / "reports/paper").mkdir(parents=True)
    (tmp_path / "reports/paper/results.csv").write_text("table,value\n")  # no experiment
    for given, rate in ((BEFORE, 0.1), (AFTER, 0.2)):
        put(tmp_path, given, rate)
        git(tmp_path, "add", "--all")
        git(tmp_path, "commit", "--quiet", "--message", "results")
    return tmp_path


def test_changes_beyond_noise_come_first(root: Path) -> None:
    [digits] = compare(root, "HEAD~1", "HEAD").experiments
    assert [(n.verdict, n.measure, n.place) for n in digits.numbers] == [
        (ChangeVerdict.BEYOND, "frechet", "trained, ddpm, ocm, nfe 5"),
        (ChangeVerdict.UNKNOWN, "loss", "sn"),
        (ChangeVerdict.NEW, "frechet", "trained, ddpm, sn, nfe 5"),
        (ChangeVerdict.GONE, "frechet", "trained, ddpm, beta, nfe 5"),
        (ChangeVerdict.WITHIN, "frechet", "trained, ddpm, ocm, nfe 10"),
        (ChangeVerdict.SAME, "loss", ""),
    ]
    assert digits.parameters == (("train.rate", 0.1, 0.2),)
    assert digits.differ
    assert "1 parameter, 1 beyond noise" in digits.summary
    # without a second commit, the working tree
    [same] = compare(root, "HEAD").experiments
    assert not same.differ
    put(root, BEFORE, 0.2)
    [changed] = compare(root, "HEAD").experiments
    assert changed.differ and changed.parameters == ()
    (root / "reports/digits").rename(root / "reports/other")
    gone, new = compare(root, "HEAD").experiments
    assert (gone.name, new.name) == ("digits", "other")
    assert not gone.parameters and not new.parameters  # neither has anything to compare with
    assert {n.verdict for n in new.numbers} == {ChangeVerdict.NEW}


def test_damage_and_unknown_commits_are_named(root: Path) -> None:
    with pytest.raises(OcmError, match="'nowhere': no such commit"):
        compare(root, "nowhere")
    (root / "reports/digits/params.yaml").write_text("- a list\n")
    with pytest.raises(OcmError, match=r"reports/digits/params.yaml: expected parameters"):
        compare(root, "HEAD")
    (root / "reports/digits/results.csv").write_text("score\n")
    with pytest.raises(OcmError, match=r"reports/digits/results.csv: has the columns score"):
        compare(root, "HEAD")


def test_the_command_prints_text_json_and_a_page(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(root)
    assert main(["compare", "HEAD~1", "HEAD", "--page", "diff.html"]) == 0
    text = capsys.readouterr().out
    assert "train.rate: 0.1 → 0.2" in text and "beyond noise" in text
    assert "within noise" not in text.partition("\n  measure")[2]
    assert "HEAD~1 → HEAD" in (root / "diff.html").read_text()
    assert main(["compare", "HEAD~1", "HEAD", "--json", "--all"]) == 0
    tree = json.loads(capsys.readouterr().out)
    assert len(tree["experiments"]["digits"]["numbers"]) == 6
