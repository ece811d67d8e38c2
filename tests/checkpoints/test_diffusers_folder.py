"""What a folder that diffusers wrote says of itself, and what is refused with its reason."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from diffusers import (
    AutoencoderKL,
    DDIMScheduler,
    DDPMPipeline,
    DDPMScheduler,
    DiTPipeline,
    EulerDiscreteScheduler,
)
from safetensors.torch import load_file, save_file
from torch import Tensor

from ocm_core import api
from ocm_core.checkpoints import diffusers_models
from ocm_core.checkpoints.diffusers_folder import T5, describe
from ocm_core.checkpoints.diffusers_models import TextEncoder, read_model, trained_with
from ocm_core.diffusion import schedule as schedules
from ocm_core.errors import OcmError
from ocm_core.schema.experiment import SchedulerSchedule
from tests.init.folders import write_pixart, write_sd3, write_stable_diffusion
from tests.networks.diffusers_cases import CLASSES, CONFIGS, model, tiny_dit

from transformers import CLIPTextModel, CLIPTokenizer  # isort: skip

WAN, SCHEDULER = "WanTransformer3DModel", "scheduler/scheduler_config"
STRETCHED = {"_class_name": "FlowMatchEulerDiscreteScheduler", "shift_terminal": 0.1}
EDM = {"sigma_data": 0.5, "sigma_min": 0.1, "sigma_max": 9.0}
PROMPTS = ["a cat", "", "an unusually long caption"]
UNET, TEXT = "unet/diffusion_pytorch_model.safetensors", "text_encoder/model.safetensors"
READERS: dict[str, Callable[[Path], object]] = {
    UNET: lambda folder: read_model(describe(folder)),
    TEXT: TextEncoder.load,
}


def written(folder: Path, name: str = "plain", **scheduler: Any) -> Path:
    DDPMPipeline(model(CONFIGS[name]), DDPMScheduler(**scheduler)).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_stable_diffusion(tmp_path_factory.mktemp("sd") / "model")


@pytest.fixture(scope="module")
def sd3(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_sd3(tmp_path_factory.mktemp("sd3") / "model")


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "model"))


def edit(file: Path, **changes: Any) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def edit_weights(file: Path, change: Callable[[dict[str, Tensor]], dict[str, Tensor]]) -> None:
    save_file(change(load_file(file)), file, {"format": "pt"})


def test_a_unet_is_described(tmp_path: Path) -> None:
    found = describe(str(written(tmp_path, "classes", prediction_type="v_prediction")))
    assert (found.kind, found.shape, found.classes) == ("UNet2DModel", (3, 8, 8), CLASSES)
    assert (found.prediction, found.null_class, found.vae) == ("v_prediction", None, None)
    assert found.parameters == sum(p.numel() for p in model(CONFIGS["classes"]).parameters())
    assert found.schedule["steps"] == 1000 and not found.learns_variance


@pytest.mark.parametrize(
    ("card", "licence"),
    [
        ("---\ntags: [x]\nlicense: mit \n---\n# A model", "mit"),
        ("---\nlicence : CC-BY-NC 4.0\n---", "CC-BY-NC 4.0"),
        ("---\nlicense:\ntags: x\n---", None),
        ("---\nlicense_name: other\n---", None),
        ("# A model\nlicense: mit", None),
        (None, None),
    ],
)
def test_the_licence_is_that_of_the_model_card(
    card: str | None, licence: str | None, folder: Path
) -> None:
    (folder / "README.md").unlink(missing_ok=True)
    if card is not None:
        (folder / "README.md").write_text(card)
    assert describe(folder).licence == licence


def test_a_transformer_is_described_with_its_autoencoder(tmp_path: Path) -> None:
    pipeline = DiTPipeline(tiny_dit(), AutoencoderKL(latent_channels=4), DDIMScheduler())
    pipeline.save_pretrained(tmp_path)
    found = describe(tmp_path)
    assert (found.kind, found.shape) == ("DiTTransformer2DModel", (4, 8, 8))
    assert (found.classes, found.null_class, found.learns_variance) == (5, 5, True)
    assert found.vae is not None and found.vae["latent_channels"] == 4
    (tmp_path / "transformer/config.json").unlink()
    with pytest.raises(OcmError, match=r"no config\.json in unet/, in transformer/, in model/ or"):
        describe(tmp_path)


def test_a_pipeline_is_described_and_every_part_is_in_the_digest(folder: Path) -> None:
    found = describe(folder)
    assert (found.kind, found.shape, found.classes) == ("UNet2DConditionModel", (4, 8, 8), None)
    assert found.text is not None and found.vae is not None
    assert found.text.arrays == {"encoder_hidden_states": (10, 8)}
    digests = {found.text.digest}
    for part in ("tokenizer/tokenizer.json", "text_encoder/config.json"):
        file = folder / part
        file.write_text(file.read_text() + "\n")
        digests.add(describe(folder).text.digest)  # type: ignore[union-attr]
    assert len(digests) == 3


@pytest.mark.parametrize(
    "scheduler",
    [
        DDPMScheduler(beta_schedule="linear", beta_start=1e-3),
        DDPMScheduler(beta_schedule="sigmoid"),
        DDPMScheduler(beta_schedule="squaredcos_cap_v2", rescale_betas_zero_snr=True),
        DDPMScheduler(trained_betas=np.linspace(0.01, 0.2, 40).tolist(), num_train_timesteps=40),
        EulerDiscreteScheduler(beta_schedule="scaled_linear", beta_start=0.00085, beta_end=0.012),
    ],
)
def test_betas_are_those_of_the_scheduler(scheduler: Any, tmp_path: Path) -> None:
    scheduler.save_pretrained(written(tmp_path) / "scheduler")
    found = describe(tmp_path)
    schedule = schedules.of_params(SchedulerSchedule.model_validate(found.schedule))
    expected = scheduler.betas.double().numpy()
    assert schedule.steps == len(expected) - found.schedule["rescale_betas_zero_snr"]
    np.testing.assert_array_equal(schedule.betas[1:], expected[: schedule.steps])


@pytest.mark.parametrize("name", [UNET, TEXT])
def test_half_precision_is_read_into_float32(name: str, folder: Path) -> None:
    file = folder / name
    half = {key: tensor.half() for key, tensor in load_file(file).items()}
    file.unlink()
    save_file(half, file.with_suffix(".fp16.safetensors"), {"format": "pt"})
    found = READERS[name](folder)
    loaded = getattr(getattr(found, "pipeline", None), "text_encoder", found).state_dict()
    assert {tensor.dtype for tensor in loaded.values()} == {torch.float32}
    assert all(torch.equal(loaded[key], tensor.float()) for key, tensor in half.items())


def test_shards_are_read_and_a_damaged_one_is_named(tmp_path: Path) -> None:
    own = model(CONFIGS["attention"])
    own.save_pretrained(tmp_path / "unet", max_shard_size="20KB")
    DDPMScheduler().save_pretrained(tmp_path / "scheduler")
    described = describe(tmp_path)
    assert len(described.files) > 2
    x = torch.randn(1, 3, 8, 8)
    denoiser = trained_with(diffusers_models.read_network(described).eval(), described.scheduler)
    with torch.no_grad():
        expected = own(x, torch.tensor([4])).sample
    torch.testing.assert_close(denoiser.predict(x, 5).eps, expected, atol=1e-5, rtol=0)
    digest, shard = described.digest, described.files[-1]
    shard.write_bytes(shard.read_bytes()[:-100])
    assert described.digest != digest
    with pytest.raises(OcmError, match=rf"{shard.name}: expected a whole safetensors file"):
        describe(tmp_path)
    shard.unlink()
    with pytest.raises(OcmError, match=rf"{shard.name}: no such file, and .*index\.json names it"):
        describe(tmp_path)


@pytest.mark.parametrize("name", [UNET, TEXT])
def test_weights_that_are_damaged_missing_or_not_finite_are_named(name: str, folder: Path) -> None:
    file, whole = folder / name, (folder / name).read_bytes()
    key = sorted(load_file(file))[-1]
    edit_weights(file, lambda weights: weights | {key: weights[key] * torch.inf})
    with pytest.raises(OcmError, match=rf"\.safetensors: {key} has values .* not finite"):
        READERS[name](folder)
    file.write_bytes(whole)
    edit_weights(file, lambda weights: dict([*weights.items()][1:]))
    with pytest.raises(OcmError, match=r"expected a (CLIPText|UNet2DCondition)Model.*not fit conf"):
        READERS[name](folder)
    file.write_bytes(whole[:-10])
    with pytest.raises(OcmError, match=r"\.safetensors: expected a whole safetensors file"):
        READERS[name](folder)


@pytest.mark.parametrize(
    ("file", "changes", "message"),
    [
        (SCHEDULER, {"_class_name": "LCMScheduler"}, "a distilled model, which"),
        (SCHEDULER, {"use_flow_sigmas": True}, "expected one of flow_prediction"),
        (SCHEDULER, STRETCHED, "shift_terminal: 0.1: the path is stretched"),
        (SCHEDULER, EDM | {"prediction_type": "sample"}, "'sample'; expected one of epsilon"),
        (SCHEDULER, {"prediction_type": "o"}, "'o'; expected one of epsilon"),
        (SCHEDULER, {"variance_type": "learned"}, "expected 'learned_range'"),
        (SCHEDULER, {"variance_type": "learned_range"}, "s: 4, .* expected 8"),
        ("unet/config", {"guidance_embeds": True}, "guidance_embeds: a distilled model, which"),
        ("unet/config", {"_class_name": WAN}, f"{WAN}, which needs data sets of videos"),
        ("unet/config", {"_class_name": "Flux"}, "describes a Flux; expected one of UNet2D"),
        ("unet/config", {"sample_size": [8, 8, 8]}, "unet/config.json: sample_size"),
        ("unet/config", {"addition_embed_type": "text_time"}, "a Stable-Diffusion XL pipe"),
        ("text_encoder/config", {"architectures": ["T5"]}, r"\['T5'\]; expected a CLIPText"),
        ("text_encoder/config", {"hidden_size": 4}, "hidden_size: 4, and the model's cross_"),
        ("text_encoder/config", {"hidden_size": None}, "hidden_size: Input should be a valid"),
        ("text_encoder/config", {"num_hidden_layers": 10**18}, "num_hidden_layers: .* 256"),
        ("tokenizer/tokenizer_config", {"model_max_length": 11}, "expected a number up to"),
    ],
)
def test_what_is_not_supported_is_refused(
    file: str, changes: dict[str, Any], message: str, folder: Path
) -> None:
    edit(folder / f"{file}.json", **changes)
    with pytest.raises(OcmError, match=message):
        describe(folder)


def test_embeddings_are_those_of_transformers(made: Path) -> None:
    encoder = TextEncoder.load(made)
    tokenizer = CLIPTokenizer.from_pretrained(made / "tokenizer")
    model = CLIPTextModel.from_pretrained(made / "text_encoder").eval()
    words = tokenizer(PROMPTS, padding="max_length", truncation=True, return_tensors="pt")
    with torch.no_grad():
        expected = model(words["input_ids"]).last_hidden_state
    found = encoder(PROMPTS)["encoder_hidden_states"]
    assert torch.equal(found, expected) and found.shape == (3, 10, 8)
    assert encoder.cut(PROMPTS) == 1


def test_two_text_encoders_and_none_are_refused(folder: Path) -> None:
    (folder / "text_encoder_2").mkdir()
    with pytest.raises(OcmError, match=r"XL pipeline, whose model takes two texts .* expected one"):
        describe(folder)
    (folder / "text_encoder_2").rmdir()
    shutil.rmtree(folder / "text_encoder")
    with pytest.raises(OcmError, match=r"text_encoder/config\.json: no such file, and the model"):
        describe(folder)


def test_a_tokenizer_or_a_configuration_of_another_encoder_is_refused(folder: Path) -> None:
    file = folder / "tokenizer/tokenizer.json"
    words = json.loads(file.read_text())
    words["model"]["vocab"]["a</w>"] = 1000
    file.write_text(json.dumps(words))
    with pytest.raises(OcmError, match="gives the number 1000, and the text encoder knows words"):
        TextEncoder.load(folder)(["a cat"])
    edit(folder / "text_encoder/config.json", vocab_size=2**20)
    with pytest.raises(OcmError, match=r"weights of \d+ bytes, and the configuration asks for"):
        TextEncoder.load(folder)


def test_a_tokenizer_without_words_is_refused(folder: Path) -> None:
    """transformers would go on without any: every word would be unknown."""
    (folder / "tokenizer/tokenizer.json").unlink()
    assert TextEncoder.load(folder).cut(PROMPTS) == 1  # by vocab.json and merges.txt
    (folder / "tokenizer/vocab.json").unlink()
    with pytest.raises(OcmError, match=r"tokenizer: no tokenizer\.json or vocab\.json; save it"):
        describe(folder)


@pytest.mark.parametrize(
    ("file", "changes", "message"),
    [
        ("text_encoder_3/config", None, r"r_3/config\.json: no such file, and the model"),
        ("text_encoder_2/config", {"architectures": [T5]}, r"\['T5Enc.*d a CLIPTextModelWith"),
        ("text_encoder_3/config", {"d_model": 8}, "d_model: 8, and the model's joint_attention"),
        ("text_encoder_3/config", {"num_layers": 10**9}, "num_layers: .* 256"),
        ("tokenizer_3/tokenizer", None, r"tokenizer_3: no tokenizer\.json or spiece\.model"),
        ("transformer/config", {"num_layers": 10**9}, "num_layers: .* 256"),
        ("transformer/config", {"pooled_projection_dim": "a"}, "pooled_projection_dim: Input sho"),
    ],
)
def test_parts_of_sd3_that_do_not_fit_are_refused(
    file: str, changes: dict[str, Any] | None, message: str, sd3: Path, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(sd3, tmp_path / "model"))
    place = folder / f"{file}.json"
    place.unlink() if changes is None else edit(place, **changes)
    with pytest.raises(OcmError, match=message):
        describe(folder)


def test_an_encoder_without_all_weights_or_of_another_width_is_refused(
    sd3: Path, tmp_path: Path
) -> None:
    """Missing weights are not drawn, and what encode_prompt gives is what the model takes."""
    folder = Path(shutil.copytree(sd3, tmp_path / "model"))
    file = folder / "text_encoder_3/model.safetensors"
    whole = file.read_bytes()
    edit_weights(file, lambda weights: dict([*weights.items()][1:]))
    with pytest.raises(OcmError, match=r"expected a T5EncoderModel.*missing_keys"):
        TextEncoder.load(folder)
    file.write_bytes(whole)
    edit(folder / "transformer/config.json", pooled_projection_dim=11)
    with pytest.raises(OcmError, match=r"pooled_projections of shape \(12,\), and the model takes"):
        TextEncoder.load(folder)(["a cat"])


def test_the_pipeline_is_that_of_the_index(tmp_path: Path) -> None:
    """PixArt-α and -Σ have one class of model, and texts of different lengths."""
    folder = write_pixart(tmp_path / "model")
    lengths = {}
    for name in ("PixArtAlphaPipeline", "PixArtSigmaPipeline"):
        edit(folder / "model_index.json", _class_name=name)
        arrays = TextEncoder.load(folder)(["a cat", ""])
        assert arrays["encoder_attention_mask"].sum(1).tolist() == [7, 1]
        lengths[name] = arrays["encoder_hidden_states"].shape[1]
    assert [*lengths.values()] == [120, 300]
    assert describe(folder).classes is None and describe(folder).learns_variance
    edit(folder / "model_index.json", _class_name="Other")
    with pytest.raises(OcmError, match="'Other'; expected one of PixArtAlphaPipeline, PixArtSigma"):
        describe(folder)


def test_tensors_beyond_those_of_the_encoder_are_left_alone(made: Path, folder: Path) -> None:
    """The first published files hold the table `position_ids`, which is computed now."""
    edit_weights(folder / TEXT, lambda weights: {**weights, "text_model.more": torch.zeros(3)})
    torch.testing.assert_close(
        *(TextEncoder.load(at)(PROMPTS) for at in (folder, made)), rtol=0, atol=0
    )


def test_prompts_need_transformers_and_a_model_that_takes_text(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(OcmError, match="prompts: expected those of a model that takes text"):
        api.load(made)
    with pytest.raises(OcmError, match="has a UNet2DModel"):
        api.load(written(tmp_path), prompts=["a cat"])
    monkeypatch.setattr(diffusers_models, "find_spec", lambda name: None)
    with pytest.raises(OcmError, match=r"transformers: `pip install 'ocm-core\[text\]'`"):
        api.load(made, prompts=["a cat"])
