"""The text encoder beside a model: described, read, and refused with its reason."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from ocm_core import api
from ocm_core.checkpoints import diffusers_models
from ocm_core.checkpoints.diffusers_folder import describe
from ocm_core.checkpoints.diffusers_models import TextEncoder
from ocm_core.errors import OcmError
from tests.init.folders import write_model, write_stable_diffusion

from transformers import CLIPTextModel, CLIPTokenizer  # isort: skip

PROMPTS = ["a cat", "", "an unusually long caption"]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_stable_diffusion(tmp_path_factory.mktemp("sd") / "model")


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "model"))


def edit(file: Path, **changes: Any) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def test_embeddings_are_those_of_transformers(made: Path) -> None:
    encoder = TextEncoder.load(made)
    tokenizer = CLIPTokenizer.from_pretrained(made / "tokenizer")
    model = CLIPTextModel.from_pretrained(made / "text_encoder").eval()
    words = tokenizer(PROMPTS, padding="max_length", truncation=True, return_tensors="pt")
    with torch.no_grad():
        expected = model(words["input_ids"]).last_hidden_state
    assert torch.equal(encoder(PROMPTS), expected)
    assert encoder(PROMPTS).shape == (3, 10, 8)
    assert encoder.cut(PROMPTS) == 1


def test_half_precision_is_read_into_float32(folder: Path) -> None:
    before = TextEncoder.load(folder)(PROMPTS)
    file = folder / "text_encoder/model.safetensors"
    half = {key: tensor.half() for key, tensor in load_file(file).items()}
    file.unlink()
    save_file(half, folder / "text_encoder/model.fp16.safetensors", {"format": "pt"})
    found = TextEncoder.load(folder)(PROMPTS)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, before, atol=0.05, rtol=0)


def test_a_pipeline_is_described_and_every_part_is_in_the_digest(folder: Path) -> None:
    found = describe(folder)
    assert (found.kind, found.shape, found.classes) == ("UNet2DConditionModel", (4, 8, 8), None)
    assert found.text is not None and found.vae is not None
    assert (found.text.tokens, found.text.width) == (10, 8)
    digest = found.text.digest
    for part in ("tokenizer/tokenizer.json", "text_encoder/config.json"):
        file = folder / part
        whole = file.read_text()
        file.write_text(whole + "\n")
        assert describe(folder).text.digest != digest  # type: ignore[union-attr]
        file.write_text(whole)
    assert describe(folder).text.digest == digest  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("file", "changes", "message"),
    [
        ("unet/config.json", {"addition_embed_type": "text_time"}, "a Stable-Diffusion XL pipe"),
        ("text_encoder/config.json", {"architectures": ["T5"]}, r"\['T5'\]; expected a CLIPText"),
        ("text_encoder/config.json", {"hidden_size": 4}, "hidden_size: 4, and the model's cross_"),
        ("text_encoder/config.json", {"hidden_size": None}, "hidden_size: Input should be a valid"),
        ("text_encoder/config.json", {"num_hidden_layers": 10**18}, "num_hidden_layers: .* 256"),
        ("tokenizer/tokenizer_config.json", {"model_max_length": 11}, "expected a number up to"),
    ],
)
def test_what_is_not_supported_is_refused(
    file: str, changes: dict[str, Any], message: str, folder: Path
) -> None:
    edit(folder / file, **changes)
    with pytest.raises(OcmError, match=message):
        describe(folder)


def test_two_text_encoders_and_none_are_refused(folder: Path) -> None:
    (folder / "text_encoder_2").mkdir()
    with pytest.raises(OcmError, match=r"XL pipeline, whose model takes two texts .* expected one"):
        describe(folder)
    (folder / "text_encoder_2").rmdir()
    shutil.rmtree(folder / "text_encoder")
    with pytest.raises(OcmError, match=r"text_encoder/config\.json: no such file, and the model"):
        describe(folder)


def test_a_tokenizer_of_another_encoder_is_refused(folder: Path) -> None:
    file = folder / "tokenizer/tokenizer.json"
    words = json.loads(file.read_text())
    words["model"]["vocab"]["a</w>"] = 1000
    file.write_text(json.dumps(words))
    with pytest.raises(OcmError, match="gives the number 1000, and the text encoder knows words"):
        TextEncoder.load(folder)(["a cat"])


def test_a_configuration_that_asks_for_more_than_there_is(folder: Path) -> None:
    edit(folder / "text_encoder/config.json", vocab_size=2**20)
    with pytest.raises(OcmError, match=r"weights of \d+ bytes, and the configuration asks for"):
        TextEncoder.load(folder)


def test_damaged_weights_are_named(folder: Path) -> None:
    file = folder / "text_encoder/model.safetensors"
    weights = load_file(file)
    save_file(dict([*weights.items()][1:]), file, {"format": "pt"})
    with pytest.raises(OcmError, match=r"expected a CLIPTextModel.*do not fit config"):
        TextEncoder.load(folder)
    file.write_bytes(file.read_bytes()[:-10])
    with pytest.raises(OcmError, match=r"model\.safetensors: expected a whole safetensors file"):
        TextEncoder.load(folder)


def test_tensors_beyond_those_of_the_encoder_are_left_alone(made: Path, folder: Path) -> None:
    """The first published files hold the table `position_ids`, which is computed now."""
    file = folder / "text_encoder/model.safetensors"
    weights = load_file(file)
    save_file({**weights, "text_model.more": torch.zeros(3)}, file, {"format": "pt"})
    assert torch.equal(TextEncoder.load(folder)(PROMPTS), TextEncoder.load(made)(PROMPTS))


def test_weights_that_are_not_finite_are_named(folder: Path) -> None:
    file = folder / "text_encoder/model.safetensors"
    weights = load_file(file)
    key = sorted(weights)[-1]
    weights[key].view(-1)[0] = torch.inf
    save_file(weights, file, {"format": "pt"})
    with pytest.raises(OcmError, match=rf"model\.safetensors: {key} has values .* not finite"):
        TextEncoder.load(folder)


def test_without_transformers_the_command_is_said(
    made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(diffusers_models, "find_spec", lambda name: None)
    with pytest.raises(OcmError, match=r"transformers: `pip install 'ocm-core\[text\]'`"):
        api.load(made, prompts=["a cat"])


def test_prompts_are_for_models_that_take_text(made: Path, tmp_path: Path) -> None:
    with pytest.raises(OcmError, match="prompts: expected those of a model that takes text"):
        api.load(made)
    with pytest.raises(OcmError, match="has a UNet2DModel"):
        api.load(write_model(tmp_path / "plain"), prompts=["a cat"])
