"""Ancestral sampling along a chain, for any kernel (DDPM, DDIM), order and covariance method.

As published: the last step shows the mean only, and at the step into τ_1 the standard deviation
may be limited to a few grey levels.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import torch

from ocm_core.covariance.interface import (
    NON_NEGATIVE,
    Clip,
    CovarianceMethod,
    ReverseStep,
    Tally,
    check_defined,
    predict,
)
from ocm_core.diffusion.chains import Chain
from ocm_core.diffusion.denoiser import Model
from ocm_core.diffusion.transition import Ddim, Ddpm, Kernel, transitions
from ocm_core.rng.noise import Noise
from ocm_core.samplers.order import Order, means_of_order
from ocm_core.shapes import Batch, Labels


@dataclass(frozen=True)
class Sampled:
    """The samples, and how many of the covariance's entries were clamped on the way."""

    x: Batch
    counted: Tally = field(default_factory=Tally)

    @property
    def tally(self) -> Counter[str]:
        """Waits for the device."""
        return self.counted.read()


Watcher = Callable[[float, Batch], None]  # of each evaluation: the timestep, and x_t
Changer = Callable[[int, int, Batch], Batch]  # of each step: its number, t, and x_s; gives x_s


@torch.no_grad()
def ancestral(
    model: Model,
    method: CovarianceMethod,
    chain: Chain,
    noise: Noise,
    *,
    kernel: Kernel,
    order: Order = 1,
    covariance_scale: float = 1.0,
    clip: Clip = NON_NEGATIVE,
    last_sigma: float | None = None,
    label: Labels = None,
    watch: Watcher | None = None,
    change: Changer | None = None,
) -> Sampled:
    """From x_T ~ N(0, I) down the chain; `covariance_scale` is a factor on every step's Σ."""
    check_defined(method, kernel)
    tally = Tally()
    mean = means_of_order(order)
    x = noise.normal()
    for number, transition in enumerate(transitions(model.schedule, chain)):
        if watch is not None:
            watch(transition.t, x)
        step = ReverseStep(transition, kernel, clip, tally)
        prediction = predict(model, [method], x, transition.t, label)
        x = mean(step, prediction)
        if transition.s > 0:
            covariance = method.step_covariance(prediction, noise)(step).times(covariance_scale)
            if last_sigma is not None and transition.s <= chain[0]:
                covariance = covariance.limited(last_sigma)
            x = x + covariance.scale(noise.normal())
        if change is not None:
            x = change(number, transition.t, x)
    return Sampled(x, tally)


ddpm = partial(ancestral, kernel=Ddpm())
ddim = partial(ancestral, kernel=Ddim())
