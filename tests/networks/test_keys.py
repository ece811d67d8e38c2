"""The published keys of any UNet, and the strictness of the door."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ocm_core.errors import OcmError
from ocm_core.networks import build
from ocm_core.networks.keys import load_published, published_keys

from .golden import golden


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


def test_keys_that_do_not_fit_are_refused_and_nothing_changes() -> None:
    case = golden("ddpm_unet_base")
    network, state = case.fresh(), case.group("weights/")
    before = {key: tensor.clone() for key, tensor in network.state_dict().items()}
    del state["mid.attn_1.q.weight"]
    state |= {f"out2.{i}.weight": torch.zeros(1) for i in range(5)}
    state["conv_in.weight"] = torch.zeros(32, 1, 3, 3)
    message = (
        r"DdpmUNet: missing: mid\.attn_1\.q\.weight; unexpected: out2\.0\.weight, .* and 2 more;"
        r" misshapen: conv_in\.weight \(32, 1, 3, 3\) instead of \(32, 3, 3, 3\);"
    )
    with pytest.raises(OcmError, match=message):
        load_published(network, state)
    assert all(torch.equal(before[key], tensor) for key, tensor in network.state_dict().items())


def test_a_file_with_a_head_needs_the_head() -> None:
    case = golden("iddpm_unet_simple")
    with pytest.raises(OcmError, match=r"unexpected: out2\.0\.bias"):
        load_published(case.fresh(), case.group("weights/"))
