"""Ancestral sampling along a chain, for any kernel (DDPM, DDIM) and any covariance method.

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
    check_defined,
    predict,
)
from ocm_core.diffusion.chains import Chain
from ocm_core.diffusion.denoiser import Model
from ocm_core.diffusion.transition import Ddim, Ddpm, Kernel, Transition, transitions
from ocm_core.rng.noise import Noise
from ocm_core.shapes import Batch, Labels


@dataclass(frozen=True)
class Sampled:
    """The samples, and how many of the covariance's entries were clamped on the way."""

    x: Batch
    tally: Counter[str] = field(default_factory=Counter)


Watcher = Callable[[Transition, Batch], None]


@torch.no_grad()
def ancestral(
    model: Model,
    method: CovarianceMethod,
    chain: Chain,
    noise: Noise,
    *,
    kernel: Kernel,
    clip: Clip = NON_NEGATIVE,
    last_sigma: float | None = None,
    label: Labels = None,
    watch: Watcher | None = None,
) -> Sampled:
    """From x_T ~ N(0, I) down the chain. `watch` sees each transition and the state entering it."""
    check_defined(method, kernel)
    tally: Counter[str] = Counter()
    x = noise.normal()
    for transition in transitions(model.schedule, chain):
        if watch is not None:
            watch(transition, x)
        step = ReverseStep(transition, kernel, clip, tally)
        prediction = predict(model, [method], x, transition.t, label)
        x = step.mean(prediction)
        if transition.s > 0:
            covariance = method.step_covariance(prediction, noise)(step)
            if last_sigma is not None and transition.s <= chain[0]:
                covariance = covariance.limited(last_sigma)
            x = x + covariance.scale(noise.normal())
    return Sampled(x, tally)


ddpm = partial(ancestral, kernel=Ddpm())
ddim = partial(ancestral, kernel=Ddim())
