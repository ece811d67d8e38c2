"""aDDIM: the length of its steps, DDIM where nothing is lacking, and the formula as published."""

from dataclasses import replace
from math import sqrt

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from ocm_core import covariance
from ocm_core.covariance.interface import Clip, ReverseStep
from ocm_core.diffusion import schedule
from ocm_core.diffusion import timesteps as rules
from ocm_core.diffusion.denoiser import Denoiser, Prediction
from ocm_core.diffusion.transition import transition
from ocm_core.rng.noise import SampleNoise
from tests.core.doubles import PAIR, Ddim, QuadraticNetwork, Replay, ddim, exact

T = 50
LEVELS = schedule.linear(T)


def model(moments: Tensor) -> Denoiser:
    return Denoiser(QuadraticNetwork(6, 0), LEVELS, moments=moments)


def stepped(seen: Prediction, step: ReverseStep, z: Tensor, **how) -> Tensor:
    found = covariance.build("addim", **how).step_covariance(seen, Replay([]))(step)
    return step.mean(seen) + found.scale(z)


@given(st.floats(0.0, 1.0), st.integers(2, T), st.data(), st.floats(0, 1))
def test_it_is_the_published_step(c: float, t: int, data: st.DataObject, share: float) -> None:
    """z_s = α_s x̂ + √(σ_s² + (d / ‖ε̂‖²) z_var) ε̂, z_var = (α_s - α_t σ_s / σ_t)² η C."""
    s = data.draw(st.integers(1, t - 1))
    x, z = torch.randn(2, 3, 6, dtype=torch.float64)
    seen = model(torch.full((T + 1,), c, dtype=torch.float64)).predict(x, t)
    step = ReverseStep(at := transition(LEVELS, s, t), Ddim(), Clip(x0=0.5))
    eps = seen.eps
    norm = (eps**2).sum(1, keepdim=True)
    part = sqrt(at.alpha_bar_s) - sqrt(at.alpha_bar_t * at.b_s / at.b_t)
    lacking = share * part**2 * c * at.b_t / at.alpha_bar_t
    expected = sqrt(at.alpha_bar_s) * step.x0(seen) + (at.b_s + 6 / norm * lacking).sqrt() * eps
    torch.testing.assert_close(stepped(seen, step, z, share=share), expected)
    doubled = (at.b_s + 6 / norm * 2 * lacking).sqrt() - sqrt(at.b_s)
    twice = step.mean(seen) + doubled * eps
    step = replace(step, posterior_factor=2.0)
    torch.testing.assert_close(stepped(seen, step, z, share=share), twice)


def test_with_noise_both_are_raised() -> None:
    """With η = 1 the noise takes λ² = β̃, and ε̂ the rest; a limit on σ is one of what is raised."""
    x, z = torch.randn(2, 3, 6, dtype=torch.float64)
    seen = model(torch.ones(T + 1, dtype=torch.float64)).predict(x, 40)
    step = ReverseStep(at := transition(LEVELS, 20, 40), kernel := Ddim(eta=1.0), Clip())
    square = (seen.eps**2).mean(1, keepdim=True)
    kept, lacking = at.b_s - at.beta_tilde, kernel.gain(at) * at.b_t / at.alpha_bar_t
    for limit in (None, 0.01):
        method = covariance.build("addim", share=1.0)
        found = method.step_covariance(seen, Replay([]))(step)
        found = found if limit is None else found.limited(limit)
        variance = lacking if limit is None else min(lacking, limit**2)
        raised = (kept + variance / square).sqrt() - sqrt(kept)
        torch.testing.assert_close(found.scale(z), raised * seen.eps + sqrt(at.beta_tilde) * z)


def test_it_is_ddim_with_a_longer_step_where_x0_is_uncertain() -> None:
    def drawn(name: str, c: float) -> Tensor:
        moments = torch.full((T + 1,), c, dtype=torch.float64)
        given = exact(PAIR, LEVELS, moments=moments), covariance.build(name), rules.even(T, 6)
        return ddim(*given, SampleNoise(0, range(4), (2,))).x

    torch.testing.assert_close(drawn("addim", 0.0), drawn("delta", 0.0))
    assert (drawn("addim", 0.5) - drawn("delta", 0.5)).abs().max() > 1e-2


def test_it_is_for_ddim_only() -> None:
    assert not covariance.build("addim").defined_for("ddpm")
