"""Bad parameters are refused with the file, the full key, what was expected, the nearest name."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ocm_core.errors import OcmError
from ocm_core.params.compose import compose
from ocm_core.params.document import read_yaml, validate
from ocm_core.params.resolved import load

OVERLAY = "params/experiment/toy_mog9.yaml"


@pytest.mark.parametrize(
    ("override", "key", "reason"),
    [
        ("+sample.cuont=3", "sample.cuont", "'cuont' is unknown; did you mean 'count'?"),
        ("schedule.kind=linaer", "schedule.kind", "'linaer' is unknown; did you mean 'linear'?"),
        ("network.scores=[true]", "network.scores.0", "True is unknown"),
        ("network.scores=[published]", "network.scores.0", "'published' is unknown"),
        ("train.score.iterations=x", "train.score.iterations", "Input should be a valid integer"),
        ("data.layout.per_axis=0", "data.layout.per_axis", "Input should be greater than"),
        ("~report.title", "report.title", "missing"),
        (
            "sample.samplers.ddpm.grids=[{steps: [1001], guidance: [1.0]}]",
            "sample.samplers.ddpm.steps",
            "1001 is more than schedule.steps = 1000",
        ),
        (
            "sample.samplers.ddim.methods=[beta]",
            "sample.samplers.ddim.methods",
            "'beta' is defined for ddpm only; for ddim use 'delta'",
        ),
        (
            "sample.samplers.ddpm.methods=[ocm_relativ]",
            "sample.samplers.ddpm.methods",
            "'ocm_relativ' is unknown; did you mean 'ocm_relative'?",
        ),
        (
            "sample.samplers.ddim.grids=[{steps: [10], guidance: [1.5]}]",
            "sample.samplers",
            "guidance needs a network with class labels",
        ),
        (
            "sample.samplers.ddpm.rederive_eps=true",
            "sample.samplers.ddpm.rederive_eps",
            "a ddpm step has no noise prediction; use false",
        ),
        (
            "sample.samplers.ddpm.last_sigma=1.0",
            "sample.samplers.ddpm.last_sigma",
            "points and latents have none",
        ),
        ("train.score=null", "train.score", "null, but the experiment trains it"),
        (
            "evaluate.loss={images: null, batch_size: 8, seed: 0}",
            "evaluate.loss",
            "a mixture's has no place for it; use null",
        ),
        (
            "evaluate.jackknife={blocks: 20}",
            "evaluate.jackknife",
            "errors of distances, and evaluate.features is null",
        ),
        ("methods.rademacher_10.probes=0", "methods.rademacher_10", "probes: input should be"),
        (
            "methods.ocm_relative.kind=ocn",
            "methods.ocm_relative",
            "'ocn' is unknown; did you mean 'ocm'?",
        ),
    ],
)
def test_refused_value(override: str, key: str, reason: str) -> None:
    with pytest.raises(OcmError) as refusal:
        compose("toy_mog9", [override])
    said = str(refusal.value)
    assert said.startswith(f"{OVERLAY}: {key}: ")
    assert reason in said
    assert "\n" not in said


BEST = (
    "{kind: best_fid, samples: 2, steps: null, guidance: 1.0, last_sigma: null, "
    "batch_size: 2, seed: 0}"
)


@pytest.mark.parametrize(
    ("every", "key", "reason"),
    [
        ("null", "train.selection", "train.heads.keep_every is null"),
        ("300", "train.heads.keep_every", "300 does not divide iterations = 800"),
    ],
)
def test_heads_that_are_chosen_among_are_kept(every: str, key: str, reason: str) -> None:
    asked = [f"train.heads.keep_every={every}", "~train.selection", f"+train.selection={BEST}"]
    with pytest.raises(OcmError, match=rf"^params/experiment/digits\.yaml: {key}: .*{reason}"):
        compose("digits", asked)


@pytest.mark.parametrize(
    ("seeds", "blocks", "key", "reason"),
    [
        ("[0, 1]", 20, "evaluate.jackknife", "with 2 seeds errors come from these; use null"),
        ("[0]", 400, "evaluate.jackknife.blocks", "400 blocks of 600 samples"),
        ("[0]", 1, "evaluate.jackknife.blocks", "greater than or equal to 2"),
    ],
)
def test_a_jackknife_is_of_one_seed_and_of_blocks(
    seeds: str, blocks: int, key: str, reason: str
) -> None:
    asked = [f"sample.seeds={seeds}", f"evaluate.jackknife={{blocks: {blocks}}}"]
    with pytest.raises(OcmError, match=rf"^params/experiment/digits\.yaml: {key}: .*{reason}"):
        compose("digits", asked)


def test_a_loss_of_one_image_would_have_no_error() -> None:
    asked = ["evaluate.loss={images: 1, batch_size: 8, seed: 0}"]
    with pytest.raises(OcmError, match=r"evaluate\.loss\.images: .*greater than or equal to 2"):
        compose("digits", asked)


@pytest.mark.parametrize(
    ("override", "reason"),
    [
        ("trian.heads.seed=1", "'trian.heads.seed' is unknown; did you mean 'train.heads.seed'?"),
        ("data.kid=1", "'data.kid' is unknown; did you mean 'data.kind'?"),
        ("nonsense", "expected key=value"),
    ],
)
def test_refused_override(override: str, reason: str) -> None:
    with pytest.raises(
        OcmError, match=rf"^override '{re.escape(override)}': .*{re.escape(reason)}"
    ):
        compose("toy_mog9", [override])


def test_valid_keys_are_listed_once() -> None:
    with pytest.raises(OcmError) as refusal:
        compose("toy_mog9", ["train.heads.learnin_rate=1"])
    listed = str(refusal.value).rpartition("valid: ")[2].split(", ")
    assert "train.heads.learning_rate" in listed and len(listed) == len(set(listed))


def test_all_problems_of_a_file_are_named_at_once() -> None:
    with pytest.raises(OcmError) as refusal:
        compose("toy_mog9", ["+head.lnik=x", "train.heads.ema=1.5", "schedule.kind=cubic"])
    keys = [line.split(": ")[1] for line in str(refusal.value).splitlines()]
    assert sorted(keys) == ["head.lnik", "schedule.kind", "train.heads.ema"]


def test_unknown_experiment() -> None:
    with pytest.raises(OcmError, match="did you mean 'toy_mog9'"):
        compose("toy_mog8")
    with pytest.raises(OcmError, match=r"params/resolved/toy_mog8\.yaml: .* 'toy_mog9'"):
        load("toy_mog8")


def test_broken_files(tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    for text, reason in {"a: [": "expected valid YAML", "- a": "expected a mapping"}.items():
        file.write_text(text)
        with pytest.raises(OcmError, match=rf"x\.yaml: {reason}"):
            read_yaml(file)
    with pytest.raises(OcmError, match=r"y\.yaml: no such file"):
        read_yaml(tmp_path / "y.yaml")


def test_tags_of_unions_are_no_part_of_the_key() -> None:
    tree = load("toy_mog9").model_dump()
    tree["data"]["layout"]["spacing"] = "wide"
    with pytest.raises(OcmError, match=r"^x\.yaml: data\.layout\.spacing: "):
        validate(tree, Path("x.yaml"))
