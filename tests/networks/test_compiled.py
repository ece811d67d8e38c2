"""The compiled UNet of improved DDPM and its head; DDPM's and DiT's are tested in their own files.

Inductor agrees as well, but takes minutes to compile it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .contract import assert_same
from .golden import golden


def test_compiled_network_agrees() -> None:
    case = golden("iddpm_unet_complex")
    network, head = case.load()
    assert head is not None

    @torch.no_grad()
    def both(*inputs: Tensor | None) -> tuple[Tensor, Tensor]:
        features = network.features(*inputs)
        return network.readout(features), head(features)

    output, second = torch.compile(both, fullgraph=True, backend="aot_eager")(*case.inputs)
    assert_same(output, torch.cat([case.arrays["eps"], case.arrays["learned_variance"]], dim=1))
    assert_same(second, case.arrays["head"])
