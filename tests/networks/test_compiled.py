"""Compiled networks and their heads agree with the reference.

Inductor takes minutes for the UNet of improved DDPM, and agrees as well.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from .contract import assert_same
from .golden import golden

slow = pytest.mark.slow


@pytest.mark.parametrize(
    ("name", "backend"),
    [
        ("ddpm_unet_complex", "aot_eager"),
        pytest.param("ddpm_unet_complex", "inductor", marks=slow),
        ("iddpm_unet_complex", "aot_eager"),
        ("dit_learn_sigma", "inductor"),
    ],
)
def test_compiled_network_agrees(name: str, backend: str) -> None:
    case = golden(name)
    network, head = case.load()

    @torch.no_grad()
    def outputs(*inputs: Tensor | None) -> list[Tensor]:
        features = network.features(*inputs)
        return [network.readout(features)] + ([] if head is None else [head(features)])

    output, *second = torch.compile(outputs, fullgraph=True, backend=backend)(*case.inputs)
    names = [key for key in ("eps", "learned_variance") if key in case.arrays]
    assert_same(output, torch.cat([case.arrays[key] for key in names], dim=1))
    for value in second:
        assert_same(value, case.arrays["head"])
