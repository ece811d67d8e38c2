"""The generated files are what composing gives now, and mean the same when read back."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from ocm_core.params.compose import compose
from ocm_core.params.resolved import dump, load
from ocm_core.pipeline import composed, generated_files
from ocm_core.pipeline.generated_files import generated, outdated
from ocm_core.schema.experiment import Experiment


def test_every_generated_file_is_up_to_date(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(composed, "REMEMBERED", tmp_path)  # nothing is known from before
    assert outdated(generated()) == []


def test_a_generated_file_that_is_no_text_is_outdated(tmp_path: Path) -> None:
    whole, damaged = tmp_path / "whole.yaml", tmp_path / "damaged.yaml"
    whole.write_text("ü", "utf-8")
    damaged.write_bytes(b"\xff\xfe")
    expected = {whole: "ü", damaged: "ü", tmp_path / "missing.yaml": "ü"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(generated_files, "RESOLVED", tmp_path)
        assert outdated(expected) == [damaged, tmp_path / "missing.yaml"]


@pytest.mark.parametrize("name", ["digits", "imagenet256", "toy_mog9"])
def test_resolved_file_is_the_composed_experiment(name: str) -> None:
    assert load(name) == compose(name)


def test_dump_reads_back() -> None:
    experiment = compose("toy_mog40", ["train.heads.learning_rate=1e-5"])
    assert Experiment.model_validate(yaml.safe_load(dump(experiment))) == experiment
    assert experiment.train.heads.learning_rate == 1e-5


def test_methods_are_completed_from_their_files() -> None:
    methods = compose("toy_mog9").methods
    assert methods["rademacher_100"].kind == "rademacher"
    assert methods["rademacher_100"].options == {"probes": 100}
    assert {label: methods[label].needs for label in ("ocm_relative", "analytic", "beta")} == {
        "ocm_relative": "head",
        "analytic": "moments",
        "beta": "nothing",
    }
