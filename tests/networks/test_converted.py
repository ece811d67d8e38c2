"""One model, written in three ways, with other ranges and times: the same predictions of ours."""

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from ocm_core.diffusion import schedule as schedules
from ocm_core.diffusion.denoiser import Denoiser, TimeConvention
from ocm_core.diffusion.schedule import Schedule
from ocm_core.diffusion.score_network import TrunkFeatures
from ocm_core.errors import OcmError
from ocm_core.networks.converted import denoiser_of
from ocm_core.networks.diffusers_unet import DiffusersUNet
from tests.core.doubles import KnownNetwork

from .diffusers_cases import CONFIGS, model

SCHEDULE = schedules.cosine(1000)
TIME = TimeConvention(shift=1)
T = torch.tensor([1, 300, 990])


class Rewritten(DiffusersUNet):
    """What a network for ε says, said as v or as x_0."""

    prediction: str

    def evaluate(self, x: Tensor, time: Tensor, label: Tensor | None = None):
        features, output = super().evaluate(x, time, label)
        alpha_bar, b = SCHEDULE.marginal_at(time.long() + 1, x)
        eps, *learned = output.chunk(self.out_channels_per_input, dim=1)
        x0 = (x - b.sqrt() * eps) / alpha_bar.sqrt()
        said = x0 if self.prediction == "sample" else alpha_bar.sqrt() * eps - b.sqrt() * x0
        return features, torch.cat([said, *learned], dim=1)


@pytest.mark.parametrize("name", ["plain", "learned_variance"])
@pytest.mark.parametrize("prediction", ["v_prediction", "sample"])
def test_the_three_predictions_agree(name: str, prediction: str) -> None:
    plain = Denoiser(DiffusersUNet(model(CONFIGS[name])).double(), SCHEDULE, TIME)
    network = Rewritten(model(CONFIGS[name])).double()
    network.prediction = prediction
    other = denoiser_of(network, SCHEDULE, TIME, prediction)
    x = torch.randn(3, CONFIGS[name]["in_channels"], 8, 8, dtype=torch.float64)
    v = torch.randn_like(x)
    ours, theirs = plain.predict(x, T), other.predict(x, T)
    assert_close(theirs.eps, ours.eps, atol=1e-9, rtol=1e-9)
    assert_close(theirs.vjp(v), ours.vjp(v), atol=1e-9, rtol=1e-9)
    assert torch.equal(theirs.features.hidden, ours.features.hidden)
    if ours.learned_variance is not None:
        assert torch.equal(theirs.learned_variance, ours.learned_variance)


class GaussianScore(KnownNetwork):
    """ε̂ of data N(0, s²), by a network that is told t / 1000."""

    def __init__(self, schedule: Schedule, variance: float, prediction: str) -> None:
        super().__init__()
        self.schedule, self.variance, self.prediction = schedule, variance, prediction

    def readout(self, features: TrunkFeatures) -> Tensor:
        x, time = features
        alpha_bar, b = self.schedule.marginal_at((time * 1000).round().long(), x)
        total = alpha_bar * self.variance + b
        mean = alpha_bar.sqrt() * self.variance / total * x
        return {"epsilon": b.sqrt() / total * x, "sample": mean}[self.prediction]


@pytest.mark.parametrize("prediction", ["epsilon", "sample"])
def test_another_range_is_another_schedule(prediction: str) -> None:
    """Data in [-0.5, 0.5] and time t / 1000: what we see is the score of data in [-1, 1]."""
    r, variance, trained = 0.5, 0.04, schedules.linear(1000)
    network = GaussianScore(trained, variance, prediction)
    time = TimeConvention(shift=0, scale=1 / 1000)
    denoiser = denoiser_of(network, trained, time, prediction, r)
    expected = r**2 * trained.alpha_bar / (r**2 * trained.alpha_bar + trained.b)
    np.testing.assert_allclose(denoiser.schedule.alpha_bar, expected, rtol=1e-9)
    x = torch.randn(3, 1, 2, 2, dtype=torch.float64)
    alpha_bar, b = denoiser.schedule.marginal_at(T, x)
    closed = b.sqrt() / (alpha_bar * variance / r**2 + b) * x
    assert_close(denoiser.predict(x, T).eps, closed, atol=1e-9, rtol=1e-7)
    v = torch.randn_like(x)
    jacobian = b.sqrt() / (alpha_bar * variance / r**2 + b) * v
    assert_close(denoiser.predict(x, T).vjp(v), jacobian, atol=1e-9, rtol=1e-7)


def test_a_learned_variance_of_another_range_is_refused() -> None:
    network = DiffusersUNet(model(CONFIGS["learned_variance"]))
    with pytest.raises(OcmError, match=r"range = 0\.5: a learned variance"):
        denoiser_of(network, SCHEDULE, TIME, "epsilon", 0.5)
