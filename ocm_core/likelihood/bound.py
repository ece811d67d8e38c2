"""The variational bound: all methods and timesteps rules from one network pass per (image, t).

-log p(x_0) ≤ KL(q(x_{τ_K}|x_0) ‖ N(0,I)) + Σ KL(q(x_s|x_t,x_0) ‖ p(x_s|x_t)) - log p(x_0|x_{τ_1}),
where the last timestep τ_K is T or below. Each term depends on x_t ~ q(x_t|x_0) alone, so that one
pass per (x_0, t) serves every method, every head and all timesteps rules that visit t.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import log
from types import MappingProxyType
from typing import Any, get_args

import numpy as np
import torch
from jaxtyping import Float, Float64
from torch import Tensor

from ocm_core.covariance.interface import (
    NON_NEGATIVE,
    Clip,
    ClipCounter,
    CovarianceMethod,
    ReverseStep,
    StepCovariance,
    check_defined,
    predict,
)
from ocm_core.diffusion.denoiser import Model
from ocm_core.diffusion.gaussian import Decoder, dimension, sum_dims
from ocm_core.diffusion.kernels.ddpm import Ddpm
from ocm_core.diffusion.schedule import Schedule, q_sample
from ocm_core.diffusion.timesteps import StepCosts, Timesteps
from ocm_core.diffusion.transition import Transition, transition, transitions
from ocm_core.errors import OcmError
from ocm_core.progress import Progress
from ocm_core.rng.noise import Noise
from ocm_core.schema.timesteps import DecoderVariance
from ocm_core.shapes import Batch, Labels, PerSample

Methods = Mapping[str, CovarianceMethod]
NoiseAt = Callable[[int], Noise]
StepTerms = Callable[[Transition, Iterable[str], DecoderVariance | None], dict[str, PerSample]]
Case = tuple[Any, ...]  # the name of the timesteps, the method, and what else tells it apart
Places = list[tuple[Case, int]]
Visits = dict[int, dict[tuple[Transition, DecoderVariance | None], Places]]
_DDPM = Ddpm()


def prior_term(schedule: Schedule, x0: Batch, end: int) -> PerSample:
    """KL(q(x_t|x_0) ‖ N(0, I)) at the last timestep t; b_t - 1 = -ᾱ_t is taken as such."""
    alpha_bar, b = schedule.marginal(end)
    return 0.5 * sum_dims(alpha_bar * x0**2 + (-alpha_bar - log(b)))


def decoder_variance(
    step: ReverseStep, covariance: StepCovariance, like: Batch, decoder: Decoder
) -> Tensor:
    """Return the variance of p(x_0|x_{τ_1}): β̃_{1:2} where the method has none (β̃_{0:t} = 0)."""
    variance = torch.full_like(like, step.transition.beta_tilde_schedule_start)
    if decoder.variance == "method":
        own = covariance(step).diagonal(like)
        variance = torch.where(own > 0, own, variance)
    return variance


@dataclass(frozen=True)
class Bound:
    """The terms of a bound in nats: the decoder, the steps by increasing t, the prior."""

    terms: Float[Tensor, "K+1 batch"]
    dimension: int

    @property
    def bits_per_dim(self) -> Float64[Tensor, "part batch"]:
        """Decoder, steps and prior, whose sum is the bound; for continuous data of a density."""
        nats = self.terms.double()
        parts = torch.stack([nats[0], nats[1:-1].sum(0), nats[-1]])
        return parts / (self.dimension * log(2.0))


@dataclass(frozen=True)
class Likelihood:
    """A bound: the model, the methods, the decoder and the limits."""

    model: Model
    methods: Methods
    decoder: Decoder
    clip: Clip = NON_NEGATIVE

    def __post_init__(self) -> None:
        for method in self.methods.values():
            check_defined(method, _DDPM)
            if not method.has_density:
                raise OcmError(f"method '{method.label}' has no density, and so no bound")

    @torch.no_grad()
    def evaluate(
        self, x0: Batch, t: int, noise: Noise, label: Labels, counters: Mapping[str, ClipCounter]
    ) -> StepTerms:
        """Evaluate the network once, at x_t ~ q(x_t | x_0), for the terms of any steps from t."""
        x = q_sample(x0, noise.normal(), *self.model.schedule.marginal(t))
        prediction = predict(self.model, self.methods.values(), x, t, label)
        covariances = {
            name: m.step_covariance(prediction, noise) for name, m in self.methods.items()
        }

        def terms(
            transition: Transition, names: Iterable[str], variance: DecoderVariance | None
        ) -> dict[str, PerSample]:
            """Return the term of one step for the methods `names`; they share its mean."""
            decoder = replace(self.decoder, variance=variance or self.decoder.variance)
            steps = {n: ReverseStep(transition, _DDPM, self.clip, counters[n]) for n in names}
            mean = ReverseStep(transition, _DDPM, self.clip).mean(prediction)
            if transition.s == 0:  # -log p(x_0|x_{τ_1})
                variances = {
                    name: decoder_variance(step, covariances[name], x0, decoder)
                    for name, step in steps.items()
                }
                return {n: -sum_dims(decoder.log_likelihood(x0, mean, variances[n])) for n in steps}
            # KL(q(x_s|x_t,x_0) ‖ p(x_s|x_t)); the two means differ by a (x_0 - x̂_0)
            difference = _DDPM.mean(transition, prediction.x, x0, prediction.eps) - mean
            return {
                name: covariances[name](step).divergence(transition.beta_tilde, difference)
                for name, step in steps.items()
            }

        return terms

    def bounds(
        self,
        timesteps: Mapping[str, Timesteps],
        x0: Batch,
        noise_at: NoiseAt,
        label: Labels = None,
        progress: Progress[int] = iter,
    ) -> tuple[dict[Case, Bound], dict[str, Counter[str]]]:
        """Return the bounds of all timesteps with all methods: see `bounds_on`."""
        rules = timesteps.items()
        cases: dict[Case, Timesteps] = {(k, m): rule for k, rule in rules for m in self.methods}
        return self.bounds_on(cases, x0, noise_at, label, progress)

    @torch.no_grad()
    def bounds_on(
        self,
        cases: Mapping[Case, Timesteps],
        x0: Batch,
        noise_at: NoiseAt,
        label: Labels = None,
        progress: Progress[int] = iter,
        decoders: Mapping[Case, DecoderVariance] = MappingProxyType({}),
    ) -> tuple[dict[Case, Bound], dict[str, Counter[str]]]:
        """Return (rule, method) → bound, and the clamped entries of C; `noise_at(t)` draws x_t.

        `decoders` has the variances of those that are not the likelihood's own.
        """
        schedule = self.model.schedule
        visits = _visits(schedule, cases, decoders)
        counters = {name: ClipCounter() for name in self.methods}
        found = {
            case: Bound(torch.empty(len(timesteps) + 1, len(x0), device=x0.device), dimension(x0))
            for case, timesteps in cases.items()
        }
        for t, noise in _announced(noise_at, progress(sorted(visits))):
            seen = self.evaluate(x0, t, noise, label, counters)
            for (step, variance), places in visits[t].items():
                terms = seen(step, dict.fromkeys(case[1] for case, _ in places), variance)
                for case, row in places:
                    found[case].terms[row] = terms[case[1]]
        for case, bound in found.items():
            bound.terms[-1] = prior_term(schedule, x0, cases[case][-1])
        return found, {name: counter.read() for name, counter in counters.items()}

    @torch.no_grad()
    def step_costs(
        self,
        grid: Sequence[int],
        x0: Batch,
        noise_at: NoiseAt,
        label: Labels = None,
        progress: Progress[int] = iter,
    ) -> dict[str, StepCosts]:
        """F[s, t]: the mean term of every step t → s between timesteps of `grid` and 0, by method.

        Row s = 0 is that of the likelihood's decoder, and `decoders` have it with each variance.
        `noise_at` had better give the same draw at every t: with a draw of its own each t would be
        taken or left for the luck of it.
        """
        schedule, times = self.model.schedule, (0, *sorted(set(grid)))
        ends = [prior_term(schedule, x0, t).double().mean() for t in times[1:]]
        square = x0.new_full((len(times), len(times)), torch.inf, dtype=torch.float64)
        costs = {name: square.clone() for name in self.methods}
        variances: tuple[DecoderVariance, ...] = get_args(DecoderVariance)
        decoders = {name: square[: len(variances)].clone() for name in self.methods}
        counters = {name: ClipCounter() for name in self.methods}
        for j, (t, noise) in enumerate(_announced(noise_at, progress(times[1:])), start=1):
            seen = self.evaluate(x0, t, noise, label, counters)
            for i, s in enumerate(times[1:j], start=1):
                for name, term in seen(transition(schedule, s, t), self.methods, None).items():
                    costs[name][i, j] = term.double().mean()
            for i, variance in enumerate(variances):
                for name, term in seen(transition(schedule, 0, t), self.methods, variance).items():
                    decoders[name][i, j] = term.double().mean()
        last = np.append(np.inf, torch.stack(ends).cpu().numpy())
        rows = {
            name: dict(zip(variances, r.cpu().numpy(), strict=True)) for name, r in decoders.items()
        }
        return {
            name: StepCosts(times, table.cpu().numpy(), last, rows[name]).decoded(
                self.decoder.variance
            )
            for name, table in costs.items()
        }


def _announced(noise_at: NoiseAt, times: Iterable[int]) -> Iterator[tuple[int, Noise]]:
    """Yield each timestep with its noise, made one ahead: what draws in advance then does so."""
    coming: deque[tuple[int, Noise]] = deque()
    for t in times:
        coming.append((t, noise_at(t)))
        if len(coming) > 1:
            yield coming.popleft()
    yield from coming


def _visits(
    schedule: Schedule, cases: Mapping[Case, Timesteps], decoders: Mapping[Case, DecoderVariance]
) -> Visits:
    """t → steps that leave from it (s = 0: by decoder) → which row of which bounds they fill."""
    visits: Visits = defaultdict(lambda: defaultdict(list))
    ascending = {visited: transitions(schedule, visited)[::-1] for visited in {*cases.values()}}
    for case, timesteps in cases.items():
        if not timesteps:
            raise OcmError(f"timesteps '{case[0]}' are empty")
        for row, step in enumerate(ascending[timesteps]):
            visits[step.t][step, None if step.s else decoders.get(case)].append((case, row))
    return visits
