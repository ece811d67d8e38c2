"""The variational bound: all methods and all chains from one network pass per (image, t).

-log p(x_0) ≤ KL(q(x_T|x_0) ‖ N(0,I)) + Σ KL(q(x_s|x_t,x_0) ‖ p(x_s|x_t)) - log p(x_0|x_{τ_1}).
Each term depends on x_t ~ q(x_t|x_0) alone, so that one pass per (x_0, t) serves every method,
every head and every chain through t.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import log

import torch
from jaxtyping import Float, Float64
from torch import Tensor

from ocm_core.covariance.interface import (
    NON_NEGATIVE,
    Clip,
    CovarianceMethod,
    ReverseStep,
    StepCovariance,
    check_defined,
    predict,
)
from ocm_core.diffusion.chains import Chain
from ocm_core.diffusion.denoiser import AnyPrediction, Model
from ocm_core.diffusion.gaussian import Decoder, dimension, sum_dims
from ocm_core.diffusion.schedule import Schedule, q_sample
from ocm_core.diffusion.transition import Ddpm, Transition, transition, transitions
from ocm_core.errors import OcmError
from ocm_core.progress import Progress
from ocm_core.rng.noise import Noise
from ocm_core.shapes import Batch, Labels, PerSample

Methods = Mapping[str, CovarianceMethod]
NoiseAt = Callable[[int], Noise]


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


@dataclass(frozen=True)
class Bound:
    """One chain's terms in nats: row 0 the decoder, then increasing t, the last row the prior."""

    terms: Float[Tensor, "K+1 batch"]
    dimension: int

    @property
    def bits_per_dim(self) -> Float64[Tensor, "part batch"]:
        """Decoder, steps and prior, whose sum is the bound on bits per dimension of an image.

        For continuous data they are those of a density in the data's units.
        """
        nats = self.terms.double()
        parts = torch.stack([nats[0], nats[1:-1].sum(0), nats[-1]])
        return parts / (self.dimension * log(2.0))


@dataclass(frozen=True)
class Pass:
    """What every method says at x_t: the terms of as many steps from t as are asked."""

    prediction: AnyPrediction
    covariances: Mapping[str, StepCovariance]
    x0: Batch
    decoder: Decoder
    clip: Clip
    tallies: Mapping[str, Counter[str]]

    def terms(self, step: Transition) -> dict[str, PerSample]:
        return {name: self._term(step, name).cpu() for name in self.covariances}

    def _term(self, transition: Transition, name: str) -> PerSample:
        step = ReverseStep(transition, Ddpm(), self.clip, self.tallies[name])
        covariance = self.covariances[name]
        if transition.s == 0:
            return decoder_term(step, covariance, self.prediction, self.x0, self.decoder)
        return step_term(step, covariance, self.prediction, self.x0)


@dataclass(frozen=True)
class Likelihood:
    """What stays the same over timesteps: the model, the methods, the decoder, the limits."""

    model: Model
    methods: Methods
    decoder: Decoder
    clip: Clip = NON_NEGATIVE

    def __post_init__(self) -> None:
        for method in self.methods.values():
            check_defined(method, Ddpm())

    @torch.no_grad()
    def evaluate(
        self, x0: Batch, t: int, noise: Noise, label: Labels, tallies: Mapping[str, Counter[str]]
    ) -> Pass:
        x = q_sample(x0, noise.normal(), *self.model.schedule.marginal(t))
        prediction = predict(self.model, self.methods.values(), x, t, label)
        covariances = {
            name: m.step_covariance(prediction, noise) for name, m in self.methods.items()
        }
        return Pass(prediction, covariances, x0, self.decoder, self.clip, tallies)

    @torch.no_grad()
    def bounds(
        self,
        chains: Mapping[str, Chain],
        x0: Batch,
        noise_at: NoiseAt,
        label: Labels = None,
        progress: Progress[int] = iter,
    ) -> tuple[dict[tuple[str, str], Bound], dict[str, Counter[str]]]:
        """(chain, method) → bound, and per method how many entries of C were clamped.

        `noise_at(t)` draws x_t: the same draw serves every chain through t.
        """
        visits = _visits(self.model.schedule, chains)
        tallies = {name: Counter[str]() for name in self.methods}
        found = {
            (chain, name): Bound(torch.empty(len(steps) + 1, len(x0)), dimension(x0))
            for chain, steps in chains.items()
            for name in self.methods
        }
        for t in progress(sorted(visits)):
            seen = self.evaluate(x0, t, noise_at(t), label, tallies)
            for step, places in visits[t].items():
                for name, term in seen.terms(step).items():
                    for chain, row in places:
                        found[chain, name].terms[row] = term
        for bound in found.values():
            bound.terms[-1] = prior_term(self.model.schedule, x0).cpu()
        return found, tallies

    @torch.no_grad()
    def pair_terms(
        self,
        grid: Sequence[int],
        x0: Batch,
        noise_at: NoiseAt,
        label: Labels = None,
        progress: Progress[int] = iter,
    ) -> dict[str, Float64[Tensor, "T+1 T+1"]]:
        """F[s, t]: the mean term of every step t → s between the timesteps of `grid` and 0.

        Other pairs are +∞, so that `chains.optimal` keeps to the grid.
        """
        size = self.model.schedule.steps + 1
        costs = {
            name: torch.full((size, size), torch.inf, dtype=torch.float64) for name in self.methods
        }
        tallies = {name: Counter[str]() for name in self.methods}
        for t in progress(sorted(grid)):
            seen = self.evaluate(x0, t, noise_at(t), label, tallies)
            for s in (0, *(s for s in grid if s < t)):
                step = transition(self.model.schedule, s, t)
                for name, term in seen.terms(step).items():
                    costs[name][s, t] = term.double().mean()
        return costs


Places = list[tuple[str, int]]


def _visits(schedule: Schedule, chains: Mapping[str, Chain]) -> dict[int, dict[Transition, Places]]:
    """t → the steps that leave from it → which row of which chains they fill."""
    visits: dict[int, dict[Transition, Places]] = defaultdict(lambda: defaultdict(list))
    for name, chain in chains.items():
        if not chain:
            raise OcmError(f"chain '{name}' has no steps")
        for row, step in enumerate(reversed(transitions(schedule, chain))):
            visits[step.t][step].append((name, row))
    return visits
