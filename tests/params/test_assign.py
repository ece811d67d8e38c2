"""`ocm set`: values go into the overlay, which keeps what a person has written there."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from ocm_core.cli import main
from ocm_core.errors import OcmError
from ocm_core.params.assign import assigned
from ocm_core.params.compose import compose
from ocm_core.params.resolved import edits, overlay
from ocm_core.pipeline.generated_files import write
from ocm_core.schema.experiment import Experiment

ROOT = Path(__file__).parents[2]
OVERLAY = overlay("digits")


@pytest.fixture(scope="module")
def remembered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("composed")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, remembered: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkout in which parameters can be written; all share what they have composed."""
    (tmp_path / ".ocm").symlink_to(remembered)
    for name in ("params", "dvc.yaml", "ocm_core"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / "params").unlink()
    shutil.copytree(ROOT / "params", tmp_path / "params")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("ocm_core.cli._check_place", lambda: None)


@pytest.mark.parametrize(
    ("assignment", "key", "value"),
    [
        ("train.heads.learning_rate=1e-5", "train.heads.learning_rate", 1e-5),
        ("sample.seeds=[0,7]", "sample.seeds", [0, 7]),
        ("evaluate.cost=null", "evaluate.cost", None),
        ("report.title='Digits: again'", "report.title", "Digits: again"),
        ("methods.ocm_relative.head.unit=one", "methods.ocm_relative.head.unit", "one"),
    ],
)
def test_what_is_set_is_what_is_composed(assignment: str, key: str, value: object) -> None:
    before = compose("digits")
    OVERLAY.write_text(assigned("digits", [assignment]))
    found: object = compose("digits")
    for name in key.split("."):
        found = found[name] if isinstance(found, dict) else getattr(found, name)
    assert found == value
    assert compose("digits") != before


def test_the_overlay_keeps_its_comments_and_its_lines() -> None:
    text = OVERLAY.read_text() + "# measured twice\nsample:\n  count: 320  # enough\n"
    OVERLAY.write_text(text)
    OVERLAY.write_text(assigned("digits", ["sample.count=640"]))
    assert OVERLAY.read_text() == text.replace("count: 320", "count: 640")


def test_only_what_is_named_is_set_where_two_keys_share_an_anchor() -> None:
    shared = "train:\n  score: &same {seed: 3}\n  heads: *same\n"
    OVERLAY.write_text(OVERLAY.read_text() + shared)
    OVERLAY.write_text(assigned("digits", ["train.heads.seed=4"]))
    train = compose("digits").train
    assert (train.score.seed, train.heads.seed) == (3, 4)


@pytest.mark.parametrize(
    ("assignment", "said"),
    [
        ("train.heads.learning_rat=1", "did you mean 'train.heads.learning_rate'?"),
        ("train.heads.learning_rate", "expected key=value"),
        ("train.heads=3", "train.heads is a group; set one of "),
        ("sample.seeds=[0", "'sample.seeds=[0': "),
        ("+sample.count=3", "did you mean 'sample.count'?"),
    ],
)
def test_a_mistake_is_refused(assignment: str, said: str) -> None:
    with pytest.raises(OcmError) as refused:
        assigned("digits", [assignment])
    assert said in str(refused.value)


@pytest.mark.parametrize("assignment", ["sample.cuont=3", "sample.count=0"])
def test_a_refusal_leaves_everything_as_it_was(
    assignment: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {file: file.read_bytes() for file in Path("params").rglob("*.yaml")}
    assert main(["set", "digits", "sample.batch_size=8", assignment]) == 1
    assert "sample.count" in capsys.readouterr().err
    assert {file: file.read_bytes() for file in Path("params").rglob("*.yaml")} == before


def test_an_edit_while_files_are_composed_is_seen_afterwards(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def slowly(name: str) -> Experiment:
        composed = compose(name)
        if name == "digits":
            OVERLAY.write_text(OVERLAY.read_text() + "# edited\n")
        return composed

    monkeypatch.setattr("ocm_core.params.compose.compose", slowly)
    write()
    assert edits("digits") == [OVERLAY]
