"""log Σ = v log b_{s:t} + (1 - v) log β̃_{s:t}, v learned with the variational bound.

v = (r + 1) / 2 comes from a head, or from the network itself where it was trained with a learned
variance. At s = 0 β̃ is zero and its logarithm is borrowed from the schedule's second step (the
covariance papers) or from that of the visited timesteps (OpenAI, DiT). As published, nothing keeps
v within 0 … 1; adjacent steps hardly constrain it at large t, and a long jump then overflows: hence
`clamp`.
"""

from functools import lru_cache
from math import log
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from ocm_core.covariance.interface import Look, Need, Profile, ReverseStep, StepCovariance
from ocm_core.covariance.learned import LearnedMethod, TrainingBatch
from ocm_core.diffusion.denoiser import AnyPrediction
from ocm_core.diffusion.gaussian import Diagonal, gaussian_kl, sum_dims
from ocm_core.diffusion.schedule import Schedule, predict_x0
from ocm_core.errors import OcmError
from ocm_core.rng.noise import Noise
from ocm_core.shapes import TimeTable


class Method(LearnedMethod):
    profile = Profile(
        "a head between beta and beta_tilde, fitted to the likelihood bound",
        "log Σ = v log(1 - ᾱₜ/ᾱₛ) + (1 - v) log β̃",
        line=Look("purple", "triangle-up", "dash"),
    )
    kernels = frozenset({"ddpm"})
    source: Literal["head", "network"] = "head"
    lower_end: Literal["schedule", "timesteps"] = "schedule"
    clamp: bool = False

    @property
    def needs(self) -> Need:  # type: ignore[override]
        return "head" if self.source == "head" else "nothing"

    def step_covariance(self, prediction: AnyPrediction, noise: Noise) -> StepCovariance:
        raw = self._raw(prediction)
        limited = raw.clamp(-1.0, 1.0) if self.clamp else raw

        def covariance(at: ReverseStep) -> Diagonal:
            step, low = at.transition, at.transition.beta_tilde
            if step.s == 0 and self.lower_end == "schedule":
                low = step.beta_tilde_schedule_start
            elif step.s == 0:
                low = step.beta_tilde_timesteps_start
            return Diagonal(torch.exp(_interpolate(limited, log(low), log(step.b_st))))

        return covariance

    def _raw(self, prediction: AnyPrediction) -> Tensor:
        if self.source == "head":
            return prediction.combine(lambda branch: branch.head(self.label))
        if prediction.learned_variance is None:
            key = f"methods.{self.label}.source"
            raise OcmError(f"{key}: the network has no learned variance; use `head`")
        return prediction.learned_variance

    def loss(self, batch: TrainingBatch) -> Float[Tensor, " batch"]:
        """The bound's term at an adjacent step t → t-1, the mean held fixed."""
        prediction, schedule = batch.prediction, batch.prediction.denoiser.schedule
        t, x = prediction.t, prediction.x
        low, high, a = (schedule.at(table, t, x) for table in _adjacent(schedule))
        log_variance = _interpolate(self._raw(prediction), low.log(), high.log())
        alpha_bar, b = prediction.marginal
        x0_hat = predict_x0(prediction.x.detach(), prediction.eps.detach(), alpha_bar, b)
        squares = low + (a * (batch.x0 - x0_hat)) ** 2
        divergence = gaussian_kl(low.log(), log_variance, squares * torch.exp(-log_variance))
        decoder = -batch.decoder.log_likelihood(batch.x0, x0_hat, log_variance.exp())
        first = (prediction.t == 1).view(low.shape)
        return sum_dims(torch.where(first, decoder, divergence))


def _interpolate(raw: Tensor, low: Tensor | float, high: Tensor | float) -> Tensor:
    v = (raw + 1.0) / 2.0
    return v * high + (1.0 - v) * low


@lru_cache(maxsize=4)  # the same arrays each time: the schedule keeps them on the device
def _adjacent(schedule: Schedule) -> tuple[TimeTable, TimeTable, TimeTable]:
    """Return β̃_t (at t = 1 the first positive one), β_t and a_t = √ᾱ_{t-1} β_t / b_t."""
    betas, b = schedule.betas[1:], schedule.b
    tilde = betas * b[:-1] / b[1:]
    tilde[0] = tilde[1]
    a = np.sqrt(schedule.alpha_bar[:-1]) * betas / b[1:]
    return np.append(0.0, tilde), np.append(0.0, betas), np.append(0.0, a)
