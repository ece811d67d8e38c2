"""The bound's terms at one noisy point (x_0, x_t), in nats per sample.

-log p(x_0) ≤ KL(q(x_T|x_0) ‖ N(0,I)) + Σ KL(q(x_s|x_t,x_0) ‖ p(x_s|x_t)) - log p(x_0|x_{τ_1}).
Each depends on x_t ~ q(x_t|x_0) alone, so that one network pass per (x_0, t) serves every method,
every head and every chain through t.
"""

from __future__ import annotations

from math import log

import torch

from ocm_core.covariance.interface import ReverseStep, StepCovariance
from ocm_core.diffusion.decoder import Decoder
from ocm_core.diffusion.denoiser import AnyPrediction
from ocm_core.diffusion.gaussian import sum_dims
from ocm_core.diffusion.schedule import Schedule
from ocm_core.shapes import Batch, PerSample


def prior_term(schedule: Schedule, x0: Batch) -> PerSample:
    """KL(q(x_T|x_0) ‖ N(0, I)); b_T - 1 = -ᾱ_T is taken as such, without cancellation."""
    alpha_bar, b = float(schedule.alpha_bar[-1]), float(schedule.b[-1])
    constant = -alpha_bar - log(b)
    return 0.5 * sum_dims(alpha_bar * x0**2 + constant)


def step_term(
    step: ReverseStep, covariance: StepCovariance, prediction: AnyPrediction, x0: Batch
) -> PerSample:
    """KL(q(x_s|x_t,x_0) ‖ p(x_s|x_t)); the two means differ by a (x_0 - x̂_0)."""
    exact = step.kernel.mean(step.transition, prediction.x, x0, prediction.eps)
    difference = exact - step.mean(prediction)
    return covariance(step).divergence(step.transition.beta_tilde, difference)


def decoder_term(
    step: ReverseStep,
    covariance: StepCovariance,
    prediction: AnyPrediction,
    x0: Batch,
    decoder: Decoder,
) -> PerSample:
    """-log p(x_0|x_{τ_1}); a method that has no variance there (β̃_{0:t} = 0) takes β̃_{1:2}."""
    variance = torch.full_like(x0, step.transition.beta_tilde_schedule_start)
    if decoder.variance == "method":
        own = covariance(step).diagonal(x0)
        variance = torch.where(own > 0, own, variance)
    return -sum_dims(decoder.log_likelihood(x0, step.mean(prediction), variance))
