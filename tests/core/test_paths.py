"""A mixture as networks for x_0, v, a velocity and EDM's F tell it: what it is under VP."""

from functools import partial
from math import log
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from ocm_core import covariance
from ocm_core.diffusion import schedule as schedules
from ocm_core.diffusion.denoiser import Denoiser, TimeConvention
from ocm_core.diffusion.gaussian import Decoder
from ocm_core.diffusion.kernels.ddpm import Ddpm
from ocm_core.diffusion.schedule import Schedule
from ocm_core.diffusion.score_network import TrunkFeatures
from ocm_core.likelihood.bound import Likelihood
from ocm_core.networks.converted import denoiser_of
from ocm_core.rng.noise import NoiseFor, SampleNoise
from ocm_core.sampling.recipe import Recipe

from .doubles import PAIR, KnownNetwork, exact

EDM = {"sigma_min": 0.002, "sigma_max": 80.0, "sigma_data": 0.5, "rho": 7.0}
BETAS = schedules.cosine(999)
TIMESTEPS = (1, 20, 100, 400, 900, 999)


class Told(KnownNetwork):
    """The exact network of a mixture, by the formulas of its own literature; told τ in float32."""

    def features(self, x: Tensor, time: Tensor, label: Tensor | None = None) -> TrunkFeatures:
        return TrunkFeatures(x, time.double().unsqueeze(1))

    def mean(self, x: Tensor, alpha: Tensor, sigma: Tensor) -> Tensor:
        """E[x_0 | α x_0 + σ ε]."""
        norm = (alpha**2 + sigma**2).sqrt()
        return PAIR.posterior(x / norm, (alpha / norm) ** 2, (sigma / norm) ** 2)[0]


class Velocity(Told):
    def readout(self, features: TrunkFeatures) -> Tensor:
        x, s = features.hidden, features.embedding / 1000
        return (x - self.mean(x, 1 - s, s)) / s


class Preconditioned(Told):
    """F of D = c_skip x + c_out F(c_in x; ln σ / 4), σ_data = 0.5."""

    def readout(self, features: TrunkFeatures) -> Tensor:
        sigma, data = (4 * features.embedding).exp(), EDM["sigma_data"]
        total = sigma**2 + data**2
        x = features.hidden * total.sqrt()
        mean = self.mean(x, torch.ones_like(sigma), sigma)
        return (mean - data**2 / total * x) / (sigma * data / total.sqrt())


class OfBetas(Told):
    """x_0, or v = (√ᾱ x - x_0) / √b."""

    def __init__(self, prediction: str) -> None:
        super().__init__()
        self.prediction = prediction

    def readout(self, features: TrunkFeatures) -> Tensor:
        x, t = features.hidden, features.embedding[:, 0].long()
        alpha, sigma = (share.sqrt() for share in BETAS.marginal_at(t, x))
        mean = self.mean(x, alpha, sigma)
        return mean if self.prediction == "sample" else (alpha * x - mean) / sigma


def of_path(path: str) -> tuple[Denoiser, Denoiser]:
    """The network as it was trained, and the exact score on the schedule that its path is."""
    if path in ("sample", "v_prediction"):
        other = denoiser_of(OfBetas(path), BETAS, TimeConvention(), path)
        expected = BETAS.alpha_bar
    elif path == "edm":
        own = schedules.edm(1000, **EDM)
        other = denoiser_of(Preconditioned(), own, TimeConvention(shift=1), "edm", 1 / 0.5)
        sigma = 0.002 ** (1 / 7) + np.linspace(0, 1, 1000) * (80 ** (1 / 7) - 0.002 ** (1 / 7))
        expected = 1 / (1 + np.append(0, sigma**7) ** 2)
    else:
        shift = float(path.removeprefix("flow"))
        own = schedules.flow(999, shift)
        other = denoiser_of(Velocity(), own, TimeConvention(), "flow_prediction")
        u = np.arange(1000) / 1000
        s = shift * u / (1 + (shift - 1) * u)
        expected = (1 - s) ** 2 / ((1 - s) ** 2 + s**2)
    np.testing.assert_allclose(other.schedule.alpha_bar, expected, rtol=1e-9)
    return other, exact(PAIR, other.schedule)


PATHS = pytest.mark.parametrize("path", ["sample", "v_prediction", "flow1", "flow3", "edm"])


@PATHS
def test_prediction_and_jacobian_are_those_of_the_exact_score(path: str) -> None:
    theirs, ours = of_path(path)
    x, t = torch.randn(6, 2, dtype=torch.float64), torch.tensor(TIMESTEPS)
    assert_close(theirs.predict(x, t).eps, ours.predict(x, t).eps, atol=1e-5, rtol=1e-5)
    found, expected = (denoiser.predict(x, t).jacobian() for denoiser in (theirs, ours))
    assert_close(found, expected, atol=1e-5, rtol=1e-5)
    for row in range(len(t)):  # and the closed form of the covariance: (b / ᾱ)(I - √b J)
        alpha_bar, b = (torch.tensor([[v]]) for v in ours.schedule.marginal(TIMESTEPS[row]))
        closed = PAIR.posterior(x[row : row + 1], alpha_bar, b)[1][0]
        scale = float(b / alpha_bar)
        derived = scale * (torch.eye(2) - float(b.sqrt()) * found[row])
        assert_close(derived, closed, atol=1e-5 * scale + 1e-9, rtol=1e-4)


@PATHS
@pytest.mark.parametrize("method", ["exact_diag", "exact_full"])
def test_samples_and_bounds_are_those_of_the_exact_score(path: str, method: str) -> None:
    rule = covariance.build(method)
    recipe = Recipe(TIMESTEPS, rule, Ddpm())
    x0 = torch.from_numpy(PAIR.draw(8, np.random.default_rng(0)))
    drawn, bounds = [], []

    def noise(use: NoiseFor, t: int) -> SampleNoise:
        made = SampleNoise(0, range(8), (2,), use=use, time=t)
        given, made.normal = made.normal, lambda: given().double()  # type: ignore[method-assign]
        return made

    for denoiser in of_path(path):
        drawn.append(recipe.draw(denoiser, noise(NoiseFor.SAMPLING, 0)).x)
        likelihood = Likelihood(denoiser, {method: rule}, Decoder(None))
        given: Any = ({"given": TIMESTEPS}, x0, partial(noise, NoiseFor.LIKELIHOOD))
        bounds.append(likelihood.bounds(*given)[0]["given", method].bits_per_dim)
    assert_close(drawn[0], drawn[1], atol=2e-4, rtol=1e-4)
    assert_close(bounds[0], bounds[1], atol=2e-4, rtol=1e-4)


def test_an_output_is_what_its_noise_estimate_came_from() -> None:
    for path in ("flow3", "edm"):
        conversion = of_path(path)[0].network.conversion
        scaled, output = torch.randn(2, 4, 2, dtype=torch.float64)
        t = torch.tensor([1.0, 3.5, 500.0, 998.0])
        eps = conversion.eps(scaled, output, t)
        assert_close(conversion.output(scaled, eps, t), output, atol=1e-7, rtol=1e-7)
        assert_close(conversion.off_path(conversion.on_path(scaled, t), t), scaled)


def test_an_exponential_ramp_is_even_in_log_sigma() -> None:
    made: Schedule = schedules.edm(5, 0.01, 100.0, 1.0, None)
    levels = 0.5 * np.log(made.b[1:] / made.alpha_bar[1:])
    np.testing.assert_allclose(levels, np.linspace(log(0.01), log(100), 5), atol=1e-9)
