"""The six networks of the paper, key by key, and the strictness of the door."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from ocm_core.errors import OcmError
from ocm_core.networks import build
from ocm_core.networks.keys import count_values, export_published, load_published, published_keys

from .golden import CHECKPOINTS, checkpoint, golden, network_from_published

HEADS = {"simple": "simple", "complex": "complex", "final_layer_4_channels": "adaln"}
# Score network and network with head, in millions, with the head that the paper used.
COUNTS = {
    "cifar10_ls": ("simple", 52.54, 52.55),
    "cifar10_cs": ("simple", 52.54, 52.55),
    "celeba64": ("simple", 78.70, 78.70),
    "imagenet64": ("complex", 121.06, 121.49),
    "lsun_bedroom": ("complex", 113.67, 114.04),
    "imagenet256": ("adaln", 675.13, 677.80),
}


def shapes(module: nn.Module) -> dict[str, list[int]]:
    return {key: list(tensor.shape) for key, tensor in export_published(module).items()}


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_keys_shapes_and_counts_are_the_published_ones(name: str) -> None:
    expected = checkpoint(name)
    kind, millions, with_head = COUNTS[name]
    with torch.device("meta"):
        network = network_from_published(expected["family"], expected["config"])
        head = network.make_head(kind)
    assert shapes(network) == expected["state_dict"]
    assert count_values(network) == expected["parameters"]
    assert round(count_values(network) / 1e6, 2) == millions
    assert round((count_values(network) + count_values(head)) / 1e6, 2) == with_head


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_head_keys_are_the_published_ones(name: str) -> None:
    expected = checkpoint(name)
    with torch.device("meta"):
        network = network_from_published(expected["family"], expected["config"])
        heads = {
            mode: network.make_head(kind)
            for mode, kind in HEADS.items()
            if kind in network.head_kinds
        }
    for mode, head in heads.items():
        added = expected["heads"][mode]
        bare = added.get("added_shapes_without_prefix", {})
        prefixed = {f"final_layer2.{key}": shape for key, shape in bare.items()}
        assert shapes(head) == added.get("added_state_dict", prefixed)
        assert count_values(head) == added["parameters_added"]


@settings(deadline=None, max_examples=15)
@given(
    family=st.sampled_from(["ddpm_unet", "iddpm_unet"]),
    multipliers=st.lists(st.integers(1, 3), min_size=1, max_size=4),
    blocks=st.integers(1, 3),
    data=st.data(),
)
def test_published_names_of_any_unet_are_distinct(
    family: str, multipliers: list[int], blocks: int, data: st.DataObject
) -> None:
    levels = st.sets(st.integers(0, len(multipliers) - 1))
    config = {
        "in_channels": 1,
        "base_channels": 8,
        "norm_groups": 4,
        "channel_multipliers": multipliers,
        "blocks_per_level": blocks,
        "attention_levels": sorted(data.draw(levels)),
    }
    with torch.device("meta"):
        names = published_keys(build(family, config))
    assert len(set(names.values())) == len(names)
    ours = ("encoder", "decoder", "stages", "residual", "resample", "stem")
    assert not [name for name in names.values() if set(name.split(".")) & set(ours)]


def weights() -> dict[str, Tensor]:
    return golden("ddpm_unet_base").group("weights/")


def test_missing_key_is_refused_by_published_name() -> None:
    state = weights()
    del state["mid.attn_1.q.weight"]
    with pytest.raises(OcmError, match=r"DdpmUNet: missing: mid\.attn_1\.q\.weight;"):
        load_published(golden("ddpm_unet_base").fresh(), state)


def test_extra_keys_are_refused_and_counted() -> None:
    state = weights() | {f"out2.{i}.weight": torch.zeros(1) for i in range(5)}
    with pytest.raises(OcmError, match=r"unexpected: out2\.0\.weight, .* and 2 more"):
        load_published(golden("ddpm_unet_base").fresh(), state)


def test_misshapen_key_is_refused_with_both_shapes() -> None:
    state = weights() | {"conv_in.weight": torch.zeros(32, 1, 3, 3)}
    message = r"misshapen: conv_in\.weight \(32, 1, 3, 3\) instead of \(32, 3, 3, 3\)"
    with pytest.raises(OcmError, match=message):
        load_published(golden("ddpm_unet_base").fresh(), state)


def test_a_refused_file_changes_nothing() -> None:
    network = golden("ddpm_unet_base").fresh()
    before = {key: tensor.clone() for key, tensor in network.state_dict().items()}
    with pytest.raises(OcmError):
        load_published(network, weights() | {"surplus": torch.zeros(1)})
    assert all(torch.equal(before[key], tensor) for key, tensor in network.state_dict().items())


def test_a_file_with_a_head_needs_the_head() -> None:
    case = golden("iddpm_unet_simple")
    with pytest.raises(OcmError, match=r"unexpected: out2\.0\.bias"):
        load_published(case.fresh(), case.group("weights/"))
