"""A scheduler of diffusers as a recipe for our networks: DPM-Solver++, UniPC, DEIS, Heun, Euler …

Scheduler and loop are theirs; ours are the betas, the noise and the limit on x̂_0. Their timestep
i = 0 … T-1 is t = i + 1. Where the schedule is a flow's, solvers that know flows take its sigmas:
their x is on the path (1 - s) x_0 + s ε, their network says the velocity, and their first timestep,
pure noise, is our last. Some schedulers (Euler, Heun, LMS, KDPM2) evaluate between two timesteps:
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

import numpy as np
import torch
from diffusers import schedulers
from torch.overrides import TorchFunctionMode

from ocm_core.diffusion import schedule as schedules
from ocm_core.diffusion.denoiser import Model, TimeConvention
from ocm_core.diffusion.guidance import UNGUIDED, Guidance
from ocm_core.diffusion.schedule import Schedule
from ocm_core.errors import OcmError, unknown
from ocm_core.networks.converted import Conversion
from ocm_core.rng.noise import Noise, NoiseFor, SampleNoise
from ocm_core.sampling.recipe import Sampled, Watcher
from ocm_core.schema.experiment import Experiment, PredictionType, SolverParams
from ocm_core.shapes import Batch, Labels

SCHEDULERS = (
    *("DDIMScheduler", "DDPMScheduler", "DEISMultistepScheduler", "DPMSolverMultistepScheduler"),
    *("DPMSolverSinglestepScheduler", "EulerAncestralDiscreteScheduler", "EulerDiscreteScheduler"),
    *("HeunDiscreteScheduler", "KDPM2AncestralDiscreteScheduler", "KDPM2DiscreteScheduler"),
    *("LMSDiscreteScheduler", "PNDMScheduler", "SASolverScheduler", "UniPCMultistepScheduler"),
)
OF_FLOWS = ("FlowMatchEulerDiscreteScheduler", "FlowMatchHeunDiscreteScheduler")
_BETAS = ("num_train_timesteps", "trained_betas", "beta_schedule", "beta_start", "beta_end")
_NOT_OPTIONS = {
    **dict.fromkeys((*_BETAS, "rescale_betas_zero_snr"), "the betas come from `schedule`"),
    **dict.fromkeys(("use_flow_sigmas", "flow_shift", "shift"), "they come from `schedule`"),
    "prediction_type": "our networks predict the noise ('epsilon'), or a flow's velocity",
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
    shift: float | None = None  # of a schedule of flow matching
    draws: ClassVar[int] = 1  # some schedulers draw nothing on their way

    @torch.no_grad()
    def draw(
        self, model: Model, noise: Noise, label: Labels = None, watch: Watcher | None = None
    ) -> Sampled:
        """Run diffusers' loop, with our noise wherever the scheduler draws some."""
        scheduler, guided = self._set, self.guidance.apply(model)
        x: Batch = noise.normal() * getattr(scheduler, "init_noise_sigma", 1.0)
        flow = self._flow
        told = np.zeros(0) if flow is None else flow.told.numpy()
        flow = flow and flow.to(x.device)
        for index in scheduler.timesteps:
            if flow is None:
                t, scaled = index.item() + 1, scheduler.scale_model_input(x, index)
            else:
                t = float(np.interp(index.item(), told, np.arange(self.schedule.steps + 1)))
                at = x.new_full((len(x),), t)
                scaled = flow.off_path(x, at)
            if watch is not None:
                watch(t, scaled)
            said = guided.predict(scaled, t, label).eps
            if flow is not None:
                said = flow.output(scaled, said, at)
            with _NoiseOfStreams(noise):
                x = scheduler.step(said, index, x).prev_sample
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
        known = SCHEDULERS if self.shift is None else (*SCHEDULERS, *OF_FLOWS)
        if self.scheduler not in known and hasattr(schedulers, self.scheduler):
            raise OcmError(
                f"scheduler: {self.scheduler} of diffusers is not for networks that predict "
                f"the noise of this schedule; use one of {', '.join(known)}"
            )
        if self.scheduler not in known:
            raise OcmError(f"scheduler: {unknown(self.scheduler, known)}")
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
        steps, made = self.schedule.steps, getattr(schedulers, self.scheduler)
        if self._prediction == "epsilon":
            betas = self.schedule.betas[1:].tolist()
            path: dict[str, Any] = {"num_train_timesteps": steps, "trained_betas": betas}
        else:
            path = {"num_train_timesteps": steps + 1, "prediction_type": self._prediction}
            path |= {"use_flow_sigmas": True, "flow_shift": self.shift, "shift": self.shift}
            path = {key: value for key, value in path.items() if key in self._parameters}
        return made(**{**path, **limits, **self.options})

    @property
    def _flow(self) -> Conversion | None:
        """Return what turns ε̂ into a velocity on a flow's path, if the scheduler takes that."""
        if self._prediction == "epsilon":
            return None
        return Conversion(self.schedule, TimeConvention(), self._prediction)

    @property
    def _prediction(self) -> PredictionType:
        """Return what the scheduler takes: the velocity if schedule and scheduler are of a flow."""
        knows_flows = self.scheduler in OF_FLOWS or "use_flow_sigmas" in self._parameters
        return "flow_prediction" if self.shift is not None and knows_flows else "epsilon"

    @cached_property
    def _parameters(self) -> set[str]:
        return {*signature(getattr(schedulers, self.scheduler).__init__).parameters} - {"self"}


def of_experiment(
    experiment: Experiment, sampler: SolverParams, nfe: int, guidance: float
) -> DiffusersSolver:
    """Return the solver of an experiment, with its schedule, limit and way of guidance."""
    sample, schedule = experiment.sample, schedules.of_experiment(experiment)
    how = Guidance(guidance, sample.guidance.guided_channels, sample.guidance.covariance)
    flows = experiment.schedule.kind == "flow" and experiment.network.range == 1.0
    shift: float | None = getattr(experiment.schedule, "shift", None) if flows else None
    given = (sampler.scheduler, sampler.options, schedule, nfe, sample.clip.x0, how, shift)
    return DiffusersSolver(*given)


class _NoiseOfStreams(TorchFunctionMode):
    """Inside, torch.randn is the noise of our streams: every scheduler draws by that call alone."""

    def __init__(self, noise: Noise) -> None:
        super().__init__()
        self.noise = noise

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self.noise.normal() if func is torch.randn else func(*args, **(kwargs or {}))
