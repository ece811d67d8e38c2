"""What a folder that diffusers wrote says of itself, and what is refused with its reason."""

from __future__ import annotations

import json
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

from ocm_core.checkpoints.diffusers_folder import describe
from ocm_core.checkpoints.diffusers_models import denoiser_of_folder, read_model, read_network
from ocm_core.diffusion import schedule as schedules
from ocm_core.errors import OcmError
from ocm_core.schema.experiment import SchedulerSchedule
from tests.networks.diffusers_cases import CLASSES, CONFIGS, model
from tests.networks.test_diffusers_dit import tiny_dit


def written(folder: Path, name: str = "plain", **scheduler: Any) -> Path:
    DDPMPipeline(model(CONFIGS[name]), DDPMScheduler(**scheduler)).save_pretrained(folder)
    return folder


def edit(file: Path, **changes: Any) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


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
    card: str | None, licence: str | None, tmp_path: Path
) -> None:
    written(tmp_path)
    (tmp_path / "README.md").unlink(missing_ok=True)
    if card is not None:
        (tmp_path / "README.md").write_text(card)
    assert describe(tmp_path).licence == licence


def test_a_transformer_is_described_with_its_autoencoder(tmp_path: Path) -> None:
    pipeline = DiTPipeline(tiny_dit(), AutoencoderKL(latent_channels=4), DDIMScheduler())
    pipeline.save_pretrained(tmp_path)
    found = describe(tmp_path)
    assert (found.kind, found.shape) == ("DiTTransformer2DModel", (4, 8, 8))
    assert (found.classes, found.null_class, found.learns_variance) == (5, 5, True)
    assert found.vae is not None and found.vae["latent_channels"] == 4
    (tmp_path / "transformer/config.json").unlink()
    with pytest.raises(
        OcmError, match=r"no config\.json in unet/, in transformer/, in model/ or in"
    ):
        describe(tmp_path)


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
    DDPMPipeline(model(CONFIGS["plain"]), DDPMScheduler()).save_pretrained(tmp_path)
    scheduler.save_pretrained(tmp_path / "scheduler")
    found = describe(tmp_path)
    schedule = schedules.of_params(SchedulerSchedule.model_validate(found.schedule))
    expected = scheduler.betas.double().numpy()
    assert schedule.steps == len(expected) - found.zero_snr
    np.testing.assert_array_equal(schedule.betas[1:], expected[: schedule.steps])


def test_half_precision_is_read_into_float32(tmp_path: Path) -> None:
    own = model(CONFIGS["plain"]).half()
    DDPMPipeline(own, DDPMScheduler()).save_pretrained(tmp_path, variant="fp16")
    found = read_model(describe(tmp_path))
    assert {p.dtype for p in found.parameters()} == {torch.float32}
    assert torch.equal(found.conv_in.weight, own.conv_in.weight.float())


def test_shards_are_read_and_a_damaged_one_is_named(tmp_path: Path) -> None:
    own = model(CONFIGS["attention"])
    own.save_pretrained(tmp_path / "unet", max_shard_size="20KB")
    DDPMScheduler().save_pretrained(tmp_path / "scheduler")
    described = describe(tmp_path)
    assert len(described.files) > 2
    x = torch.randn(1, 3, 8, 8)
    denoiser = denoiser_of_folder(read_network(described).eval(), described)
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


def test_weights_that_are_not_finite_are_named(tmp_path: Path) -> None:
    own = model(CONFIGS["plain"])
    own.conv_in.bias.data[0] = torch.nan
    DDPMPipeline(own, DDPMScheduler()).save_pretrained(tmp_path)
    with pytest.raises(OcmError, match=r"\.safetensors: conv_in\.bias has values .* not finite"):
        read_model(describe(tmp_path))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"_class_name": "FlowMatchHeunDiscreteScheduler"}, "a flow-matching model"),
        ({"use_flow_sigmas": True}, "a flow-matching model"),
        ({"prediction_type": "original"}, "prediction_type: 'original'; expected one of epsilon"),
        ({"variance_type": "learned"}, "variance_type: 'learned'; expected 'learned_range'"),
        ({"variance_type": "learned_range"}, "out_channels: 3, .* expected 6"),
    ],
)
def test_what_is_not_supported_is_refused(
    changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    edit(written(tmp_path) / "scheduler/scheduler_config.json", **changes)
    with pytest.raises(OcmError, match=message):
        describe(tmp_path)


def test_other_classes_are_refused_by_name(tmp_path: Path) -> None:
    edit(written(tmp_path) / "unet/config.json", _class_name="FluxTransformer2DModel")
    with pytest.raises(
        OcmError, match="describes a FluxTransformer2DModel; expected one of UNet2D"
    ):
        describe(tmp_path)
