"""A scheduler of diffusers as a recipe for our networks: DPM-Solver++, UniPC, DEIS, Heun, Euler …

Scheduler and loop are theirs; ours are the betas, the noise and the limit on x̂_0. Their timestep
i = 0 … T-1 is t = i + 1. Some schedulers (Euler, Heun, LMS, KDPM2) evaluate between two timesteps:
the network gets the fraction, as in diffusers. `nfe` counts evaluations of the network: Heun makes
2n - 1 of them in n steps, and numbers that a scheduler cannot make are refused.
"""

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cached_property
from inspect import signature
from types import SimpleNamespace
from typing import Any, ClassVar

import torch
from diffusers import schedulers
from torch.overrides import TorchFunctionMode

from ocm_core.diffusion import schedule as schedules
from ocm_core.diffusion.denoiser import Model
from ocm_core.diffusion.guidance import UNGUIDED, Guidance
from ocm_core.diffusion.schedule import Schedule
from ocm_core.errors import OcmError, unknown
from ocm_core.rng.noise import Noise, NoiseFor, SampleNoise
from ocm_core.sampling.recipe import Sampled, Watcher
from ocm_core.schema.experiment import Experiment, SolverParams
from ocm_core.shapes import Batch, Labels

SCHEDULERS = (
    *("DDIMScheduler", "DDPMScheduler", "DEISMultistepScheduler", "DPMSolverMultistepScheduler"),
    *("DPMSolverSinglestepScheduler", "EulerAncestralDiscreteScheduler", "EulerDiscreteScheduler"),
    *("HeunDiscreteScheduler", "KDPM2AncestralDiscreteScheduler", "KDPM2DiscreteScheduler"),
    *("LMSDiscreteScheduler", "PNDMScheduler", "UniPCMultistepScheduler"),
)
_BETAS = ("num_train_timesteps", "trained_betas", "beta_schedule", "beta_start", "beta_end")
_NOT_OPTIONS = {
    **dict.fromkeys((*_BETAS, "rescale_betas_zero_snr"), "the betas come from `schedule`"),
    **dict.fromkeys(("use_flow_sigmas", "flow_shift"), "our networks are no flow-matching models"),
    "prediction_type": "our networks predict the noise ('epsilon')",
}


@dataclass(frozen=True)
class DiffusersSolver:
    """A scheduler's class and options as a recipe; `x0` is the limit on x̂_0, if any."""

    scheduler: str
    options: Mapping[str, Any]
    schedule: Schedule
    nfe: int
    x0: float | None = None
    guidance: Guidance = UNGUIDED
    draws: ClassVar[int] = 1  # some schedulers draw nothing on their way

    @torch.no_grad()
    def draw(
        self, model: Model, noise: Noise, label: Labels = None, watch: Watcher | None = None
    ) -> Sampled:
        """Run diffusers' loop, with our noise wherever the scheduler draws some."""
        scheduler, guided = self._set, self.guidance.apply(model)
        x: Batch = noise.normal() * scheduler.init_noise_sigma
        for index in scheduler.timesteps:
            scaled, t = scheduler.scale_model_input(x, index), index.item() + 1
            if watch is not None:
                watch(t, scaled)
            eps = guided.predict(scaled, t, label).eps
            with _NoiseOfStreams(noise):
                x = scheduler.step(eps, index, x).prev_sample
        return Sampled(x)

    def check(self, shape: tuple[int, ...]) -> None:
        """Raise an error if something does not fit, by a rehearsal with a network that says 0."""
        self._check_names()
        noise = SampleNoise(0, range(1), shape, use=NoiseFor.TIMING)
        zero: Any = SimpleNamespace(predict=lambda x, *_: SimpleNamespace(eps=torch.zeros_like(x)))
        try:
            drawn = replace(self, guidance=UNGUIDED).draw(zero, noise).x
        except OcmError:
            raise
        except Exception as error:  # whatever their code says of options that do not go together
            reason = " ".join(str(error).split())
            raise OcmError(f"options: {self.scheduler} fails with them: {reason}") from None
        if not drawn.isfinite().all():
            what = f"{self.scheduler} leaves the finite numbers in {self.nfe} evaluations"
            raise OcmError(f"grids: {what}")

    def _check_names(self) -> None:
        if self.scheduler not in SCHEDULERS and hasattr(schedulers, self.scheduler):
            raise OcmError(
                f"scheduler: {self.scheduler} of diffusers is not for networks that predict "
                f"the noise of a schedule of betas; use one of {', '.join(SCHEDULERS)}"
            )
        if self.scheduler not in SCHEDULERS:
            raise OcmError(f"scheduler: {unknown(self.scheduler, SCHEDULERS)}")
        for key in self.options:
            if key in _NOT_OPTIONS:
                raise OcmError(f"options.{key}: {_NOT_OPTIONS[key]}; leave it out")
            if key not in self._parameters:
                raise OcmError(f"options: {unknown(key, self._parameters - _NOT_OPTIONS.keys())}")
        if self.x0 not in (None, 1.0):
            raise OcmError(f"sample.clip.x0 = {self.x0}: diffusers clamps to ±1; use 1.0 or null")

    @property
    def _set(self) -> Any:
        """Return a new scheduler, set to make exactly `nfe` evaluations."""
        steps = next((n for n in range(self.nfe, 0, -1) if self._count(n) <= self.nfe), 0)
        if self._count(steps) != self.nfe:
            near = [count for n in (steps, steps + 1) if (count := self._count(n))]
            raise OcmError(
                f"grids: {self.scheduler} cannot make {self.nfe} evaluations of the network; "
                f"the nearest that it can: {', '.join(map(str, near))}"
            )
        scheduler = deepcopy(self._unset)
        scheduler.set_timesteps(steps)
        return scheduler

    def _count(self, steps: int) -> int:
        """Return the evaluations in as many steps; 0 if the scheduler has no timesteps for them."""
        scheduler = deepcopy(self._unset)
        try:
            scheduler.set_timesteps(steps)
        except (ValueError, ArithmeticError, IndexError, RuntimeError):
            return 0
        return len(scheduler.timesteps) if scheduler.timesteps.isfinite().all() else 0

    @cached_property
    def _unset(self) -> Any:
        """Return the scheduler before its timesteps are set: some take a second to make."""
        # x̂_0 is clamped to ±1 where that is an option: not of Euler, KDPM2, LMS and PNDM
        clamps, limits = self.x0 is not None, dict[str, Any]()
        if "clip_sample" in self._parameters:
            limits = {"clip_sample": clamps, "clip_sample_range": 1.0}
        elif "thresholding" in self._parameters:
            limits = {"thresholding": clamps, "sample_max_value": 1.0}
        return getattr(schedulers, self.scheduler)(
            num_train_timesteps=self.schedule.steps,
            trained_betas=self.schedule.betas[1:].tolist(),
            **{**limits, **self.options},
        )

    @cached_property
    def _parameters(self) -> set[str]:
        return {*signature(getattr(schedulers, self.scheduler).__init__).parameters} - {"self"}


def of_experiment(
    experiment: Experiment, sampler: SolverParams, nfe: int, guidance: float
) -> DiffusersSolver:
    """Return the solver of an experiment, with its schedule, limit and way of guidance."""
    sample, schedule = experiment.sample, schedules.of_experiment(experiment)
    how = Guidance(guidance, sample.guidance.guided_channels, sample.guidance.covariance)
    return DiffusersSolver(sampler.scheduler, sampler.options, schedule, nfe, sample.clip.x0, how)


class _NoiseOfStreams(TorchFunctionMode):
    """Inside, torch.randn is the noise of our streams: every scheduler draws by that call alone."""

    def __init__(self, noise: Noise) -> None:
        super().__init__()
        self.noise = noise

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self.noise.normal() if func is torch.randn else func(*args, **(kwargs or {}))
