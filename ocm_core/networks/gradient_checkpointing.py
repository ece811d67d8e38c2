"""Gradient checkpointing: blocks that compute their activations again when these are needed.

A product with the Jacobian keeps what every layer has computed. With checkpointing only the inputs
of the blocks are kept, and one block's activations at a time: the same numbers to the bit, for one
forward pass more.
"""

from collections.abc import Iterator
from typing import Any

from torch import nn
from torch.utils.checkpoint import checkpoint

from ocm_core.errors import OcmError


def enable_gradient_checkpointing(network: nn.Module) -> None:
    """Recompute the blocks of the network from now on, whenever a gradient passes through it."""
    checkpointed = list(blocks(network))
    if not checkpointed:
        raise OcmError(
            f"{type(network).__name__} has no blocks (members of a ModuleList) to compute again;"
            " its activations are kept: switch recomputing off"
        )
    for block in checkpointed:
        block.forward = _recomputed(block)


def blocks(network: nn.Module) -> Iterator[nn.Module]:
    """Yield the members of the innermost module lists: those that contain no list themselves."""
    for module in network.modules():
        if isinstance(module, nn.ModuleList):
            yield from (member for member in module if not _has_list(member))


def _has_list(module: nn.Module) -> bool:
    return any(isinstance(part, nn.ModuleList) for part in module.modules())


def _recomputed(block: nn.Module) -> Any:
    plain = block.forward

    def forward(*inputs: Any, **named: Any) -> Any:
        return checkpoint(plain, *inputs, use_reentrant=False, **named)

    return forward
