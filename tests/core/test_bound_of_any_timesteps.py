"""The bound of any timesteps is a bound: on Gaussian data, never below their entropy.

The score of Gaussian data is linear, so every term is quadratic in (x_0, ε), and four points with
the right moments give its expectation exactly: nothing here is a Monte-Carlo estimate.
"""

from __future__ import annotations

from math import e, log, pi

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ocm_core import covariance
from ocm_core.diffusion import schedule as schedules
from ocm_core.diffusion.denoiser import Denoiser
from ocm_core.diffusion.gaussian import Decoder
from ocm_core.diffusion.mixture import Mixture
from ocm_core.diffusion.schedule import Schedule
from ocm_core.diffusion.timesteps import Timesteps
from ocm_core.likelihood.bound import Likelihood
from ocm_core.networks.mixture import MixtureScore
from tests.core.doubles import Replay

T = 60
SIGNS = torch.tensor([[1.0], [1.0], [-1.0], [-1.0]], dtype=torch.float64)
NOISE = torch.tensor([[1.0], [-1.0], [1.0], [-1.0]], dtype=torch.float64)

SCHEDULES = st.sampled_from([schedules.linear(T), schedules.cosine(T)])
CHAINS = st.sets(st.integers(1, T), min_size=1, max_size=8).map(lambda found: tuple(sorted(found)))
STDS = st.floats(0.02, 3.0)  # from below √β̃_{1:2}, which a decoder may borrow, to above


def expected_bound(schedule: Schedule, timesteps: Timesteps, std: float, method: str) -> float:
    """In nats, over x_0 ~ N(0, σ²) and all noise."""
    data = Mixture(torch.zeros(1, 1, dtype=torch.float64), std)
    likelihood = Likelihood(
        Denoiser(MixtureScore(data, schedule), schedule),
        {method: covariance.build(method)},
        Decoder(None, variance="method"),
    )
    found, _ = likelihood.bounds({"K": timesteps}, std * SIGNS, lambda t: Replay([NOISE]))
    return float(found["K", method].terms.double().sum(0).mean())


def entropy(std: float) -> float:
    return 0.5 * log(2 * pi * e * std**2)


def end_divergence(schedule: Schedule, timesteps: Timesteps, std: float) -> float:
    """KL(q(x_t) ‖ N(0, 1)) at the last timestep, where x_t has the variance ᾱ_t σ² + b_t."""
    alpha_bar, b = schedule.marginal(timesteps[-1])
    variance = alpha_bar * std**2 + b
    return 0.5 * (variance - 1.0 - log(variance))


@given(SCHEDULES, CHAINS, STDS, st.sampled_from(["beta", "beta_tilde", "exact_diag"]))
def test_the_bound_of_any_timesteps_is_at_least_the_entropy(
    schedule: Schedule, timesteps: Timesteps, std: float, method: str
) -> None:
    assert expected_bound(schedule, timesteps, std, method) >= entropy(std) - 1e-4


@given(SCHEDULES, CHAINS, STDS)
def test_with_exact_covariances_only_the_end_of_the_timesteps_is_lost(
    schedule: Schedule, timesteps: Timesteps, std: float
) -> None:
    gap = expected_bound(schedule, timesteps, std, "exact_diag") - entropy(std)
    assert gap == pytest.approx(end_divergence(schedule, timesteps, std), abs=1e-4, rel=1e-4)
