"""I-DDPM on a mixture, where the best v(x_t, t) is known: what its form can reach, and what not.

At an adjacent step the bound's term is least at Σ = β̃_t + a_t² C, C = diag Cov[x_0 | x_t], so
v* = log(Σ / β̃_t) / log(β_t / β̃_t). docs/results.md quotes the figures.
"""

from math import log, pi, sqrt
from typing import ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor

from ocm_core import covariance
from ocm_core.covariance.interface import ClipCounter, CovarianceMethod, ReverseStep, StepCovariance
from ocm_core.covariance.learned import TrainingBatch
from ocm_core.diffusion import schedule
from ocm_core.diffusion import timesteps as rules
from ocm_core.diffusion.denoiser import AnyPrediction, Denoiser
from ocm_core.diffusion.gaussian import Decoder, Diagonal
from ocm_core.diffusion.mixture import mixture
from ocm_core.diffusion.transition import transition
from ocm_core.likelihood.bound import Likelihood
from ocm_core.metrics.mmd import mean_kernel
from ocm_core.params.compose import compose
from ocm_core.rng.noise import Noise, SampleNoise
from ocm_core.stages import mmd
from tests.core.doubles import Ddpm, Given, Replay, ddpm, exact

LEVELS = schedule.linear(1000)
MIXTURE = mixture(compose("toy_mog9").data)
BANDWIDTHS = mmd.STAGE.settings(compose("toy_mog9")).bandwidths


def noisy(t: int, count: int) -> tuple[Tensor, Tensor, Tensor]:
    draw = np.random.default_rng(t)
    x0 = torch.from_numpy(MIXTURE.draw(count, draw))
    eps = torch.from_numpy(draw.standard_normal((count, 2)))
    return x0, eps, sqrt(LEVELS.alpha_bar[t]) * x0 + sqrt(LEVELS.b[t]) * eps


def best_v(x: Tensor, t: int) -> Tensor:
    beta = float(LEVELS.betas[t])
    tilde = beta * LEVELS.b[t - 1] / LEVELS.b[t]
    a = sqrt(LEVELS.alpha_bar[t - 1]) * beta / LEVELS.b[t]
    variance = tilde + a**2 * posterior(x, t)[1].diagonal(dim1=1, dim2=2)
    return (variance.log() - log(tilde)) / log(beta / tilde)


class Best(CovarianceMethod):
    """The closed form in the place of a head."""

    kernels: ClassVar[frozenset[str] | None] = frozenset({"ddpm"})
    limit: float

    def step_covariance(self, prediction: AnyPrediction, noise: Noise) -> StepCovariance:
        v = best_v(prediction.x, int(prediction.t[0])).clamp(0.0, self.limit).float()
        return lambda step: Diagonal(
            torch.exp(v * log(step.transition.b_st) + (1 - v) * log(step.transition.beta_tilde))
        )


def with_head(v: Tensor) -> Denoiser:
    return exact(MIXTURE, LEVELS, heads={"iddpm": Given(2 * v - 1)})


def posterior(x: Tensor, t: int) -> tuple[Tensor, Tensor]:
    ones = torch.ones(len(x), 1, dtype=torch.float64)
    return MIXTURE.posterior(x.double(), *(level * ones for level in LEVELS.marginal(t)))


@pytest.mark.parametrize("t", [20, 100, 300])
def test_the_loss_is_least_at_the_closed_form(t: int) -> None:
    _, _, x = noisy(t, 1)
    mean, covariances = posterior(x, t)
    signs = torch.tensor([[1.0, 1], [1, -1], [-1, 1], [-1, -1]], dtype=torch.float64)
    x0 = mean + signs @ torch.linalg.cholesky(covariances[0]).T

    def loss(v: Tensor) -> float:
        seen = with_head(v.repeat(4, 1)).predict(x.repeat(4, 1), t)
        batch = TrainingBatch(seen, x0, x0, Decoder(None))
        return float(covariance.build("iddpm").loss(batch).detach().mean())

    best = best_v(x, t)
    assert loss(best) < min(loss(best - 0.05), loss(best + 0.05))


@pytest.mark.parametrize("t", [1, 2, 3, 300])
def test_the_loss_is_the_bound_s_term_of_an_adjacent_step(t: int) -> None:
    x0, eps, x = noisy(t, 5)
    model = with_head(torch.linspace(-0.5, 1.5, 10, dtype=torch.float64).view(5, 2))
    method, decoder = covariance.build("iddpm"), Decoder(None, variance="method")
    loss = method.loss(TrainingBatch(model.predict(x, t), x0, eps, decoder))
    likelihood = Likelihood(model, {"iddpm": method}, decoder)
    seen = likelihood.evaluate(x0, t, Replay([eps]), None, {"iddpm": ClipCounter()})
    terms = seen(transition(LEVELS, t - 1, t), ["iddpm"], None)
    torch.testing.assert_close(loss.detach(), terms["iddpm"].detach())


@pytest.mark.parametrize(("v", "clamped"), [(-0.5, 0.0), (0.25, 0.25), (1.5, 1.0)])
def test_a_clamped_v_lies_between_0_and_1(v: float, clamped: float) -> None:
    model = with_head(torch.full((1, 2), v, dtype=torch.float64))
    step = ReverseStep(transition(LEVELS, 100, 300), Ddpm())
    for clamp, expected in ((True, clamped), (False, v)):
        seen = model.predict(noisy(300, 1)[2], 300)
        found = covariance.build("iddpm", clamp=clamp).step_covariance(seen, Replay([]))(step)
        low, high = step.transition.beta_tilde, step.transition.b_st
        variance = torch.full((1, 2), low ** (1 - expected) * high**expected).double()
        torch.testing.assert_close(found.diagonal(seen.x).detach(), variance)


def test_the_best_v_leaves_its_range_where_the_data_are_wider_than_the_noise() -> None:
    """Towards t = T it is the variance of the data, 6.01 here; Σ = b_{s:t}, v = 1, is for 1."""
    assert float(best_v(noisy(1000, 2000)[2], 1000).mean()) == pytest.approx(6.01, abs=0.02)
    assert MIXTURE.variance == pytest.approx(6.01)
    assert float(best_v(noisy(50, 2000)[2], 50).max()) < 0.3


def test_the_bound_hardly_tells_v_at_large_t() -> None:
    """The curvature of a term in v is log²(β_t / β̃_t) / 2: ten orders of magnitude."""
    curvature = [0.5 * log(LEVELS.b[t] / LEVELS.b[t - 1]) ** 2 for t in (2, 500, 1000)]
    assert curvature[0] > 0.3 and curvature[1] < 1e-6 and curvature[2] < 1e-12


@pytest.mark.parametrize(("limit", "low", "high"), [(1.0, 4e-3, 7e-3), (2.0, 1e-3, 2.5e-3)])
def test_what_the_best_v_reaches_in_ten_steps(limit: float, low: float, high: float) -> None:
    """MMD² without its bias; within 0 … 1, where published samplers keep it, 5.5e-3 is the best."""
    method, noise = Best(label="best", limit=limit), SampleNoise(0, range(4000), (2,))
    drawn = ddpm(exact(MIXTURE, LEVELS), method, rules.even(1000, 10), noise).x
    data = torch.from_numpy(MIXTURE.draw(4000, np.random.default_rng(5))).float()
    assert low < unbiased_mmd2(drawn, data) < high


def unbiased_mmd2(x: Tensor, y: Tensor) -> float:
    """Without the pairs of a point with itself, for which the kernel is 1."""
    n, m = len(x), len(y)
    within = (mean_kernel(x, x, BANDWIDTHS) * n - 1) / (n - 1)
    within += (mean_kernel(y, y, BANDWIDTHS) * m - 1) / (m - 1)
    return within - 2 * mean_kernel(x, y, BANDWIDTHS)


def test_at_the_last_step_the_lower_end_is_that_of_the_second() -> None:
    """β̃_{0:1} is zero; with v = 0 the decoder's variance is β̃_{1:2}."""
    x0, eps, x = noisy(1, 5)
    seen = with_head(torch.zeros(5, 2, dtype=torch.float64)).predict(x, 1)
    found = covariance.build("iddpm").loss(TrainingBatch(seen, x0, eps, Decoder(None))).detach()
    tilde = LEVELS.betas[2] * LEVELS.b[1] / LEVELS.b[2]
    mean = (x - sqrt(LEVELS.b[1]) * seen.eps.detach()) / sqrt(LEVELS.alpha_bar[1])
    expected = 0.5 * ((x0 - mean) ** 2 / tilde + log(2 * pi * tilde)).sum(1)
    torch.testing.assert_close(found, expected)
