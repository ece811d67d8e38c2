"""A recipe for samples: timesteps, kernel, covariance method, order, limits and guidance.

A scheduler of diffusers is a recipe as well (`diffusers_solver.py`). As published, the last step
shows the mean only, and at the step into τ_1 σ may be limited to a few grey levels.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from importlib import import_module
from types import MappingProxyType
from typing import ClassVar, NamedTuple, Protocol

import torch

from ocm_core import covariance
from ocm_core.cells import Cell
from ocm_core.covariance.interface import (
    NON_NEGATIVE,
    Clip,
    ClipCounter,
    CovarianceMethod,
    ReverseStep,
    check_defined,
    predict,
)
from ocm_core.diffusion import kernels
from ocm_core.diffusion import schedule as schedules
from ocm_core.diffusion import timesteps as rules
from ocm_core.diffusion.denoiser import AnyPrediction, Denoiser, Model
from ocm_core.diffusion.gaussian import Covariance, pixel_sigma_limit
from ocm_core.diffusion.guidance import UNGUIDED, Guidance
from ocm_core.diffusion.kernels import Kernel
from ocm_core.diffusion.schedule import Schedule
from ocm_core.diffusion.timesteps import Timesteps, TimestepsByMethod
from ocm_core.diffusion.transition import transitions
from ocm_core.errors import OcmError
from ocm_core.rng.noise import Noise, NoiseFor, SampleNoise
from ocm_core.rng.streams import Stream, stream
from ocm_core.sampling import recipes_of
from ocm_core.sampling.order import means_of_order
from ocm_core.sampling.start import DataGaussian
from ocm_core.schema.experiment import Experiment, Order, RecipeParams, SolverParams
from ocm_core.shapes import Batch, Labels

Watcher = Callable[[float, Batch], None]  # called with t and x_t before each network evaluation
Changer = Callable[[int, int, Batch], Batch]  # given number, t and x_s after a step
NO_TIMESTEPS: TimestepsByMethod = MappingProxyType({})


@dataclass(frozen=True)
class Sampled:
    """Samples, and how many entries of the covariance were clamped on the way."""

    x: Batch
    counter: ClipCounter = field(default_factory=ClipCounter)

    @property
    def clipped(self) -> Counter[str]:
        """Return the counts; this waits for the device."""
        return self.counter.read()


class AnyRecipe(Protocol):
    """A recipe of this package, or a scheduler of diffusers."""

    @property
    def draws(self) -> int:
        """Return how many normal draws it takes at least: as many are drawn ahead."""

    def draw(
        self, model: Model, noise: Noise, label: Labels = None, watch: Watcher | None = None
    ) -> Sampled:
        """Draw one sample for each row of the noise."""


@dataclass(frozen=True)
class Recipe:
    """How samples are drawn with a covariance method."""

    timesteps: Timesteps
    method: CovarianceMethod
    kernel: Kernel
    order: Order = 1
    posterior_factor: float = 1.0  # on gain · C in every step's Σ
    clip: Clip = NON_NEGATIVE
    final_sigma: float | None = None  # limits σ at the step into τ_1
    guidance: Guidance = UNGUIDED
    start: DataGaussian | None = None  # in place of N(0, I)

    def __post_init__(self) -> None:
        check_defined(self.method, self.kernel)
        means_of_order(self.order, self.kernel, self.method)

    @classmethod
    def from_params(
        cls,
        params: RecipeParams,
        schedule: Schedule,
        nfe: int,
        method: CovarianceMethod,
        *,
        clip: Clip,
        levels: int | None,
        guidance: Guidance = UNGUIDED,
        optimal: TimestepsByMethod = NO_TIMESTEPS,
    ) -> Recipe:
        """Return the recipe of parameters; `levels` of grey are None for latents and points."""
        limit = params.clip_final_sigma
        sigma = None if limit is None or levels is None else pixel_sigma_limit(limit, levels)
        return cls(
            timesteps=rules.build(params.timesteps, schedule, nfe, method.label, optimal),
            method=method,
            kernel=kernels.build(params.kind, **params.options),
            order=params.order,
            posterior_factor=params.posterior_factor,
            clip=clip,
            final_sigma=method.final_sigma(sigma),
            guidance=guidance,
        )

    @property
    def draws(self) -> int:
        return len(self.timesteps)

    def from_timestep(self, t: int) -> Recipe:
        """Return the rest of it, from one of its timesteps on; of order 1, which has no memory."""
        if self.order != 1:
            raise OcmError(f"order = {self.order}: a step depends on those before; use order 1")
        return replace(self, timesteps=tuple(s for s in self.timesteps if s <= t))

    @torch.no_grad()
    def draw(
        self,
        model: Model,
        noise: Noise,
        label: Labels = None,
        watch: Watcher | None = None,
        change: Changer | None = None,
        stepper: Stepper | None = None,
    ) -> Sampled:
        """Draw samples: from x_T ~ N(0, I), or the Gaussian of q(x_t), down the timesteps."""
        guided, stepper = self.guidance.apply(model), stepper or Stepper(self, model.schedule)
        x = stepper.begin(noise)
        for number, t in enumerate(reversed(self.timesteps)):
            if watch is not None:
                watch(t, x)
            x = stepper.step(stepper.predict(guided, x, t, label), t, noise)
            if change is not None:
                x = change(number, t, x)
        return Sampled(x, stepper.counter)


class StepGaussian(NamedTuple):
    """The Gaussian of x_s given x_t: the last step has its mean only, and no covariance."""

    mean: Batch
    covariance: Covariance | None
    s: int

    def draw(self, noise: Noise) -> Batch:
        """Return x_s."""
        if self.covariance is None:
            return self.mean
        return self.mean + self.covariance.scale(noise.normal())


class Stepper:
    """The steps of a batch of samples, from the noisiest one down, and a count of the clamped."""

    noisy_end: ClassVar[bool] = False  # whether the last step draws, too

    def __init__(self, recipe: Recipe, schedule: Schedule) -> None:
        self.recipe, self.schedule, self.counter = recipe, schedule, ClipCounter()
        self._mean = means_of_order(recipe.order, recipe.kernel, recipe.method)
        self._left = deque(transitions(schedule, recipe.timesteps))

    def begin(self, noise: Noise) -> Batch:
        """Return the x_t that samples begin with."""
        x, start = noise.normal(), self.recipe.start
        if start is None:
            return x
        return start.at(x, *self.schedule.marginal(self.recipe.timesteps[-1]))

    def predict(self, model: Model, x: Batch, t: int, label: Labels) -> AnyPrediction:
        """Evaluate the model, with a graph where the covariance method reads the Jacobian."""
        return predict(model, [self.recipe.method], x, t, label)

    def step(self, prediction: AnyPrediction, t: int, noise: Noise) -> Batch:
        """Return x_s of the step that begins at `t`, given the prediction at x_t."""
        return self.gaussian(prediction, t, noise).draw(noise)

    def gaussian(self, prediction: AnyPrediction, t: int, noise: Noise) -> StepGaussian:
        """Return the Gaussian of x_s; `noise` is what the covariance method draws from, if any.

        Where the last step draws, a method without variance there (β̃_{0:t} = 0) takes β̃_{1:2}.
        """
        recipe, step = self.recipe, self.next(t)
        x = self._mean(step, prediction)
        s = step.transition.s
        if s == 0 and not self.noisy_end:
            return StepGaussian(x, None, s)
        step = replace(step, posterior_factor=recipe.posterior_factor * self._mean.left)
        covariance = recipe.method.step_covariance(prediction, noise)(step)
        if s == 0:
            covariance = covariance.filled(step.transition.beta_tilde_schedule_start)
        if recipe.final_sigma is not None and s == recipe.timesteps[0]:
            covariance = covariance.limited(recipe.final_sigma)
        return StepGaussian(x, covariance, s)

    def next(self, t: int) -> ReverseStep:
        """Return the step that is next, which has to begin at `t`."""
        if not self._left or self._left[0].t != t:
            expected = f"the step from {self._left[0].t}" if self._left else "none: all are taken"
            raise OcmError(f"a step from timestep {t}: the next one is {expected}")
        recipe = self.recipe
        return ReverseStep(self._left.popleft(), recipe.kernel, recipe.clip, self.counter)


def of_experiment(
    experiment: Experiment,
    params: RecipeParams,
    method: str,
    nfe: int,
    guidance: float = 1.0,
    optimal: TimestepsByMethod = NO_TIMESTEPS,
) -> Recipe:
    """Return a recipe with a method of an experiment, its limits and its way of guidance."""
    chosen, sample = experiment.methods[method], experiment.sample
    how = sample.guidance
    return Recipe.from_params(
        params,
        schedules.of_experiment(experiment),
        nfe,
        covariance.build(chosen.kind, method, **chosen.options),
        clip=Clip(x0=sample.clip.x0, c_max=sample.clip.covariance),
        levels=experiment.levels,
        guidance=Guidance(guidance, how.guided_channels, how.covariance),
        optimal=optimal,
    )


def of_cell(
    experiment: Experiment, cell: Cell, optimal: TimestepsByMethod = NO_TIMESTEPS
) -> AnyRecipe:
    """Return the recipe of a cell; solvers are imported only where they are used."""
    sampler = experiment.sample.samplers[cell.sampler]
    if isinstance(sampler, SolverParams):
        module = import_module("ocm_core.sampling.diffusers_solver")
        solver: AnyRecipe = module.of_experiment(experiment, sampler, cell.nfe, cell.guidance)
        return solver
    params = recipes_of(sampler)[cell.nfe]
    return of_experiment(experiment, params, cell.method, cell.nfe, cell.guidance, optimal)


def draw_rows(
    recipe: AnyRecipe,
    denoiser: Denoiser,
    shape: tuple[int, ...],
    rows: range,
    seed: int,
    label: Labels = None,
    *,
    device: torch.device | str = "cpu",
    use: NoiseFor = NoiseFor.SAMPLING,
    watch: Watcher | None = None,
) -> Sampled:
    """Draw the samples with these indices: each has its own noise, whatever its batch."""
    noise = SampleNoise(seed, rows, shape, device, use, draws=recipe.draws)
    return recipe.draw(denoiser, noise, label, watch)


def class_labels(
    denoiser: Denoiser, classes: int, seed: int, rows: range, device: torch.device | str = "cpu"
) -> Labels:
    """Draw the classes of the samples with these indices; None for an unconditional network."""
    if not denoiser.network.conditional:
        return None
    sources = (stream(Stream.SAMPLE_LABEL, seed, index) for index in rows)
    return torch.tensor([int(source.integers(classes)) for source in sources]).to(device)
