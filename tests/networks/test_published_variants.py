"""What some published UNets have and those of the paper do not: classes, other norms and heads."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from ocm_core.errors import OcmError
from ocm_core.networks import ddpm_unet, iddpm_unet
from ocm_core.networks._unet import UNet
from ocm_core.networks.keys import export_published, load_published

from .golden import golden

X, TIME, LABEL = torch.randn(2, 3, 8, 8), torch.tensor([3.0, 700.0]), torch.tensor([1, 4])


def drawn(network: UNet) -> UNet:
    """Every parameter other than zero, so that each layer has its say."""
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(0)
        for parameter in network.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    return network.eval()


def openai(**changes: Any) -> UNet:
    arguments = golden("iddpm_unet_base").meta["config"] | changes
    return drawn(iddpm_unet.IddpmUNet(iddpm_unet.Config.from_published(arguments)))


def test_a_class_is_added_to_the_embedding() -> None:
    network = openai(num_classes=5)
    plain = openai()
    with torch.no_grad():
        plain.load_state_dict(
            {k: v for k, v in network.state_dict().items() if not k.startswith("label_table")}
        )
        features = network.features(X, TIME, LABEL)
        table = network.get_parameter("label_table.weight")
        expected = plain.embed(X, TIME, None) + table[LABEL]
        torch.testing.assert_close(features.embedding, expected)
        assert not torch.allclose(network(X, TIME, LABEL), network(X, TIME, LABEL.flip(0)))
    assert network.conditional and not plain.conditional
    with pytest.raises(OcmError, match="has no null class; pass a label"):
        network(X, TIME)
    keys = export_published(network).keys() - export_published(plain).keys()
    assert keys == {"label_emb.weight"}


def test_without_scale_and_shift_the_embedding_is_added_before_the_norm() -> None:
    block = openai(use_scale_shift_norm=False).get_submodule("middle.0.residual")
    x = torch.randn(2, block.conv_in.in_channels, 4, 4)
    embedding = torch.randn(2, block.embed.in_features)
    hidden = block.conv_in(F.silu(block.norm_in(x)))
    hidden = hidden + block.embed(F.silu(embedding))[:, :, None, None]
    expected = x + block.conv_out(F.silu(block.norm_out(hidden)))
    torch.testing.assert_close(block(x, embedding), expected)
    assert block.embed.out_features == block.conv_in.out_channels


def test_heads_of_attention_on_the_way_up_are_their_own() -> None:
    network, plain = openai(num_heads_upsample=1, num_heads=2), openai(num_heads=2)
    heads = {
        name: module.heads
        for name, module in network.named_modules()
        if isinstance(module, iddpm_unet.IddpmAttentionBlock)
    }
    assert {count for name, count in heads.items() if name.startswith("decoder")} == {1}
    assert {count for name, count in heads.items() if not name.startswith("decoder")} == {2}
    load_published(plain, export_published(network))
    with torch.no_grad():
        assert not torch.allclose(plain(X, TIME), network(X, TIME), atol=1e-5)


def test_without_convolutions_images_are_averaged_and_copied() -> None:
    arguments = golden("ddpm_unet_base").meta["config"] | {"resamp_with_conv": False}
    network = drawn(ddpm_unet.DdpmUNet(ddpm_unet.Config.from_published(arguments)))
    image = torch.arange(16.0).view(1, 1, 4, 4)
    down = network.get_submodule("encoder.0.resample")
    up = network.get_submodule("decoder.0.resample")
    assert torch.equal(down(image)[0, 0, 0], torch.tensor([2.5, 4.5]))
    assert torch.equal(up(image)[0, 0, :2, :4], torch.tensor([[0.0, 0, 1, 1], [0, 0, 1, 1]]))
    assert not any("sample" in key for key in export_published(network))
    assert network(X, TIME).shape == X.shape


def _count(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def test_the_families_of_the_paper_are_what_they_were() -> None:
    """The same layers in the same order: weights are drawn from one stream."""
    torch.manual_seed(0)
    network = iddpm_unet.build({**_plain(), "attention_heads": 2})
    first: Tensor = next(iter(network.state_dict().values()))
    torch.manual_seed(0)
    expected = nn.Linear(8, 32).weight
    assert torch.equal(first, expected)
    assert _count(network) == _count(iddpm_unet.build({**_plain(), "attention_heads": 4}))


def _plain() -> dict[str, Any]:
    return {
        "in_channels": 1,
        "base_channels": 8,
        "norm_groups": 4,
        "channel_multipliers": [1],
        "blocks_per_level": 1,
        "attention_levels": [],
    }
