"""Ancestral sampling along a chain, for any kernel (DDPM, DDIM) and any covariance method.

As published: the last step shows the mean only, and at the step into τ_1 the standard deviation
may be limited to a few grey levels.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

import torch

from ocm_core.covariance.interface import NON_NEGATIVE, Clip, CovarianceMethod, ReverseStep
from ocm_core.diffusion.chains import Chain
from ocm_core.diffusion.denoiser import AnyPrediction
from ocm_core.diffusion.noise import Noise
from ocm_core.diffusion.schedule import Schedule
from ocm_core.diffusion.transition import Ddim, Ddpm, Kernel, Transition, transitions
from ocm_core.errors import OcmError
from ocm_core.shapes import Batch, Labels


class Model(Protocol):
    """Anything that predicts at (x_t, t); a sampler never asks what kind of model it holds."""

    @property
    def schedule(self) -> Schedule: ...

    def predict(self, x: Batch, t: int, label: Labels = None) -> AnyPrediction: ...


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
            covariance = method.look(prediction, noise)(step)
            if last_sigma is not None and transition.s <= chain[0]:
                covariance = covariance.limited(last_sigma)
            x = x + covariance.scale(noise.normal())
    return Sampled(x, tally)


def predict(
    model: Model, methods: Iterable[CovarianceMethod], x: Batch, t: int, label: Labels
) -> AnyPrediction:
    """One pass serves all methods: its graph is kept where one of them reads the Jacobian."""
    graph = any(method.reads_jacobian for method in methods)
    with torch.set_grad_enabled(graph):
        return model.predict(x.detach().requires_grad_(graph), t, label)


def check_defined(method: CovarianceMethod, kernel: Kernel) -> None:
    if kernel.name not in method.samplers:
        raise OcmError(
            f"method '{method.label}' is not defined for {kernel.name}; "
            f"it is for {', '.join(sorted(method.samplers))}"
        )


ddpm = partial(ancestral, kernel=Ddpm())
ddim = partial(ancestral, kernel=Ddim())
