"""Recomputing blocks: the same bits, from activations that are not kept."""

import pytest
import torch
from torch import Tensor, nn

from ocm_core.diffusion.score_network import ScoreNetwork
from ocm_core.errors import OcmError
from ocm_core.networks import blocks, enable_gradient_checkpointing

from .golden import Golden, golden


@pytest.fixture(params=("iddpm_unet_base", "ddpm_unet_base", "dit_learn_sigma"))
def case(request: pytest.FixtureRequest) -> Golden:
    return golden(request.param)


def products(network: ScoreNetwork, case: Golden, count: int = 1) -> tuple[Tensor, ...]:
    """The output, and Jᵀ v `count` times from one graph."""
    x, time, label = case.inputs
    x = x.clone().requires_grad_(True)
    output = network.requires_grad_(False)(x, time, label)
    v = torch.linspace(-1, 1, output.numel()).view_as(output)
    found = (torch.autograd.grad(output, x, v, retain_graph=True)[0] for _ in range(count))
    return output, *found


def test_same_bits_for_every_product(case: Golden) -> None:
    network = case.network()
    output, vjp = products(network, case)
    enable_gradient_checkpointing(network)
    assert all(map(torch.equal, products(network, case, 2), (output, vjp, vjp)))


def test_blocks_run_again_for_the_gradient_only(case: Golden) -> None:
    network = case.network()
    first, runs = next(blocks(network)), []
    next(first.children()).register_forward_pre_hook(lambda *_: runs.append(1))
    enable_gradient_checkpointing(network)
    case.features(network)
    assert len(runs) == 1
    products(network, case)
    assert len(runs) == 3


def test_blocks_are_not_nested(case: Golden) -> None:
    found = list(blocks(case.network()))
    inside = {id(part) for block in found for part in block.modules() if part is not block}
    assert found and not {id(block) for block in found} & inside


def test_a_network_without_blocks_is_refused() -> None:
    with pytest.raises(OcmError, match="Sequential has no blocks"):
        enable_gradient_checkpointing(nn.Sequential(nn.Linear(2, 2)))
