"""Stable Diffusion's UNet is a score network whose labels are prompts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from ocm_core import api
from ocm_core.checkpoints.diffusers_folder import describe
from ocm_core.checkpoints.diffusers_models import read_model
from ocm_core.errors import OcmError
from ocm_core.networks.diffusers import Prompts, build
from ocm_core.networks.diffusers_text_unet import DiffusersTextUNet, UNet2DConditionModel
from ocm_core.networks.keys import export_published, load_published
from tests.init.folders import write_stable_diffusion

from diffusers import StableDiffusionPipeline  # isort: skip

X, TIME = torch.randn(3, 4, 8, 8, generator=torch.Generator().manual_seed(0)), [0.0, 17.0, 899.0]
SMALL = {
    "sample_size": 8,
    "block_out_channels": (8, 8),
    "down_block_types": ("CrossAttnDownBlock2D", "DownBlock2D"),
    "up_block_types": ("UpBlock2D", "CrossAttnUpBlock2D"),
    "layers_per_block": 1,
    "norm_num_groups": 4,
    "cross_attention_dim": 8,
    "attention_head_dim": 4,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_stable_diffusion(tmp_path_factory.mktemp("sd") / "model")


@pytest.fixture(scope="module")
def network(folder: Path) -> DiffusersTextUNet:
    return api.load(folder, prompts=["a cat", "a dog"]).network  # type: ignore[return-value]


def test_outputs_are_those_of_diffusers(folder: Path, network: DiffusersTextUNet) -> None:
    pipe = StableDiffusionPipeline.from_pretrained(folder, safety_checker=None)
    conditional, empty = pipe.encode_prompt(["a dog", "a cat"], "cpu", 1, True)
    text, time = torch.cat([conditional, empty[:1]]), torch.tensor(TIME)
    label = torch.tensor([1, 0, 2])
    with torch.no_grad():
        assert_close(network.context(X, label), text, atol=1e-6, rtol=0)
        expected = pipe.unet(X, time, text).sample
        assert_close(network(X, time, label), expected, atol=1e-5, rtol=0)
        assert not torch.allclose(network(X, time), expected, atol=1e-4)
        null = pipe.unet(X, time, empty[:1].expand(3, -1, -1)).sample
        assert_close(network(X, time), null, atol=1e-5, rtol=0)
    assert network.conditional and network.null_label == 2
    assert export_published(network).keys() == pipe.unet.state_dict().keys()


def test_a_prediction_of_v_is_converted(tmp_path: Path) -> None:
    folder = write_stable_diffusion(tmp_path / "v", prediction="v_prediction")
    denoiser = api.load(folder, prompts=["a cat"])
    model, embedding = read_model(describe(folder)), denoiser.network.network.prompts.embeddings
    alpha_bar = denoiser.schedule.alpha_bar[500]
    with torch.no_grad():
        v = model(X, torch.tensor(499), embedding[:1].expand(3, -1, -1)).sample
        eps = denoiser.predict(X, 500, torch.zeros(3, dtype=torch.int64)).eps
    assert_close(eps, alpha_bar**0.5 * v + (1 - alpha_bar) ** 0.5 * X, atol=1e-5, rtol=0)


def test_a_new_model_takes_the_weights(folder: Path, network: DiffusersTextUNet) -> None:
    again = build(describe(folder).config).eval()
    load_published(again, export_published(network))
    with pytest.raises(OcmError, match=r"takes text, and has been given no prompts; say which"):
        again(X, torch.tensor(TIME))
    again.prompts, again.null_label = network.prompts, 2
    label = torch.tensor([0, 1, 2])
    assert torch.equal(again(X, torch.tensor(TIME), label), network(X, torch.tensor(TIME), label))


@pytest.mark.parametrize("kind", ["simple", "complex"])
def test_heads_begin_at_zero(kind: str, network: DiffusersTextUNet) -> None:
    features = network.features(X, torch.tensor(TIME), torch.tensor([0, 1, 2]))
    head = network.make_head(kind)
    assert head(features).shape == X.shape and not head(features).any()
    nn.init.normal_(head.get_parameter("conv.weight"))
    changed = network.features(X, torch.tensor(TIME), torch.tensor([1, 1, 2]))
    differs = (head(features) - head(changed)).abs().flatten(1).amax(1) > 1e-4
    assert differs.tolist() == [True, False, False]  # the text reaches the head


def test_prompts_are_no_weights() -> None:
    assert not Prompts(torch.zeros(3, 2, 2)).state_dict()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"out_channels": 3}, "out_channels=3; expected in_channels=4, or 8"),
        ({"num_class_embeds": 3}, "num_class_embeds=3: a condition beside the text"),
        ({"timestep_post_act": "silu"}, "timestep_post_act='silu': a condition beside"),
        ({"act_fn": "gelu"}, "act_fn and norm_num_groups: expected 'silu'"),
    ],
)
def test_models_that_mean_something_else_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(OcmError, match=message):
        DiffusersTextUNet(UNet2DConditionModel(**SMALL | change))
