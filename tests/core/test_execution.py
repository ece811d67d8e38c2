"""However a network is run, it says the same up to rounding."""

from dataclasses import replace
from functools import partial

import pytest
import torch

from ocm_core.covariance.learned import CovarianceHead
from ocm_core.diffusion import schedule
from ocm_core.diffusion.denoiser import Denoiser, executed
from ocm_core.networks import build

CONFIG = {"in_channels": 1, "base_channels": 8, "channel_multipliers": [1, 2], "norm_groups": 4}
CONFIG |= {"blocks_per_level": 1, "attention_levels": []}
PLAIN = {"precision": "float32", "channels_last": False, "compiled": False}
X = torch.randn(3, 1, 8, 8, generator=torch.Generator().manual_seed(1))


def a_denoiser() -> Denoiser:
    torch.manual_seed(0)
    network = build("ddpm_unet", CONFIG).eval().requires_grad_(False)
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.2)  # the last layer would be zero
    return Denoiser(network, schedule.build("linear", 1000))


@pytest.mark.parametrize(
    ("choice", "tolerance"),
    [
        ({}, 0.0),
        ({"precision": "tf32"}, 1e-2),
        ({"channels_last": True}, 1e-5),
        ({"compiled": True}, 1e-5),
        ({"precision": "bfloat16"}, 5e-2),
    ],
)
def test_the_prediction_is_the_plain_one_s(
    choice: dict[str, object], tolerance: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What inductor makes of a graph takes a minute; tests/networks compare it with goldens."""
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))
    with torch.no_grad():
        expected = a_denoiser().predict(X, 300).eps
        found = executed(a_denoiser(), **(PLAIN | choice)).predict(X, 300).eps
    assert found.dtype == torch.float32
    allowed = choice.get("precision", "float32") != "float32"
    assert torch.backends.cuda.matmul.allow_tf32 is torch.backends.cudnn.allow_tf32 is allowed
    assert float((found - expected).abs().max()) <= tolerance * float(expected.std())
    if choice.get("precision") == "bfloat16":
        assert not torch.equal(found, expected)


@pytest.mark.parametrize("kind", ["simple", "complex"])
def test_heads_stay_in_single_precision(kind: str) -> None:
    plain = a_denoiser()
    torch.manual_seed(2)
    head = plain.network.make_head(kind)
    for parameter in head.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    lower = executed(a_denoiser(), **(PLAIN | {"precision": "bfloat16"}))
    expected, found = (
        replace(denoiser, heads={"ocm": CovarianceHead(head)}).predict(X, 300).head("ocm")
        for denoiser in (plain, lower)
    )
    assert found.dtype == torch.float32
    assert float((found - expected).abs().max()) <= 0.1 * float(expected.std())
