"""A scheduler of diffusers as a sampler of our networks: DPM-Solver++, UniPC, DEIS, Heun, Euler …

The scheduler is theirs, and so is the loop: scale the input, evaluate, step. Ours are the betas,
the noise and the limit on x̂_0. Their timestep i = 0 … T-1 is our t = i + 1. Some schedulers (Euler,
Heun, LMS, KDPM2) evaluate between two timesteps: the network gets the fraction, as in diffusers.

`cell.steps` of such a sampler are evaluations of the network. Heun makes 2n - 1 of them in n steps:
numbers that a scheduler cannot make are refused, and so is one that does not fit the network.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property
from inspect import signature
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from ocm_core.compat import make_torchvision_importable
from ocm_core.diffusion.schedule import Schedule
from ocm_core.errors import OcmError, unknown
from ocm_core.rng.noise import Noise, SampleNoise, Use
from ocm_core.shapes import Batch

make_torchvision_importable()  # diffusers imports it

from diffusers import schedulers  # noqa: E402

SCHEDULERS = (
    "DDIMScheduler",
    "DDPMScheduler",
    "DEISMultistepScheduler",
    "DPMSolverMultistepScheduler",
    "DPMSolverSinglestepScheduler",
    "EulerAncestralDiscreteScheduler",
    "EulerDiscreteScheduler",
    "HeunDiscreteScheduler",
    "KDPM2AncestralDiscreteScheduler",
    "KDPM2DiscreteScheduler",
    "LMSDiscreteScheduler",
    "PNDMScheduler",
    "UniPCMultistepScheduler",
)
_BETAS = "the betas come from `schedule`"
_NOT_OPTIONS = {
    "num_train_timesteps": _BETAS,
    "trained_betas": _BETAS,
    "beta_schedule": _BETAS,
    "beta_start": _BETAS,
    "beta_end": _BETAS,
    "rescale_betas_zero_snr": _BETAS,
    "prediction_type": "our networks predict the noise ('epsilon')",
    "use_flow_sigmas": "our networks are no flow-matching models",
    "flow_shift": "our networks are no flow-matching models",
}


EvaluateEps = Callable[[Batch, float], Batch]  # ε̂ at (x_t, t)


@dataclass(frozen=True)
class DiffusersSolver:
    """A scheduler's class and options, on a schedule of ours; `x0` is the limit on x̂_0, if any."""

    scheduler: str
    options: Mapping[str, Any]
    schedule: Schedule
    x0: float | None

    @torch.no_grad()
    def draw(self, eps: EvaluateEps, noise: Noise, evaluations: int) -> Batch:
        """diffusers' loop, with our noise wherever the scheduler draws some."""
        scheduler = self._making(evaluations)
        x: Batch = noise.normal() * scheduler.init_noise_sigma
        for theirs in scheduler.timesteps:
            scaled = scheduler.scale_model_input(x, theirs)
            predicted = eps(scaled, theirs.item() + 1)
            with _NoiseOfStreams(noise):
                x = scheduler.step(predicted, theirs, x).prev_sample
        return x

    def check(self, evaluations: int, shape: tuple[int, ...]) -> None:
        """Refuse what does not fit, by a rehearsal: one sample of a network that says 0."""
        self._check_names()
        noise = SampleNoise(0, range(1), shape, use=Use.TIMING)
        try:
            drawn = self.draw(lambda x, _: torch.zeros_like(x), noise, evaluations)
        except OcmError:
            raise
        except Exception as error:  # whatever their code says of options that do not go together
            reason = " ".join(str(error).split())
            raise OcmError(f"options: {self.scheduler} fails with them: {reason}") from None
        if not drawn.isfinite().all():
            raise OcmError(
                f"grids: {self.scheduler} leaves the finite numbers in {evaluations} evaluations"
            )

    def _check_names(self) -> None:
        if self.scheduler not in SCHEDULERS:
            if hasattr(schedulers, self.scheduler):
                raise OcmError(
                    f"scheduler: {self.scheduler} of diffusers is not for networks that predict "
                    f"the noise of a schedule of betas; use one of {', '.join(SCHEDULERS)}"
                )
            raise OcmError(f"scheduler: {unknown(self.scheduler, SCHEDULERS)}")
        for key in self.options:
            if key in _NOT_OPTIONS:
                raise OcmError(f"options.{key}: {_NOT_OPTIONS[key]}; leave it out")
            if key not in self._parameters:
                raise OcmError(f"options: {unknown(key, self._parameters - _NOT_OPTIONS.keys())}")
        if self.x0 not in (None, 1.0):
            raise OcmError(f"sample.clip.x0 = {self.x0}: diffusers clamps to ±1; use 1.0 or null")

    def _making(self, evaluations: int) -> Any:
        """A new scheduler, set to make exactly as many evaluations."""
        fewer = (n for n in range(evaluations, 0, -1) if self._count(n) <= evaluations)
        steps = next(fewer, 0)
        if self._count(steps) != evaluations:
            near = [count for n in (steps, steps + 1) if (count := self._count(n))]
            raise OcmError(
                f"grids: {self.scheduler} cannot make {evaluations} evaluations of the network; "
                f"the nearest that it can: {', '.join(map(str, near))}"
            )
        scheduler = deepcopy(self._unset)
        scheduler.set_timesteps(steps)
        return scheduler

    def _count(self, steps: int) -> int:
        """Evaluations in as many steps; 0 where the scheduler has no timesteps for them."""
        scheduler = deepcopy(self._unset)
        try:
            scheduler.set_timesteps(steps)
        except (ValueError, ArithmeticError, IndexError, RuntimeError):
            return 0
        return len(scheduler.timesteps) if scheduler.timesteps.isfinite().all() else 0

    @cached_property
    def _unset(self) -> Any:
        """The scheduler before its timesteps are set: some take a second to make."""
        return getattr(schedulers, self.scheduler)(
            num_train_timesteps=self.schedule.steps,
            trained_betas=self.schedule.betas[1:].tolist(),
            **{**self._limits(), **self.options},
        )

    def _limits(self) -> dict[str, Any]:
        """x̂_0 clamped to ±1 where the scheduler can; Euler, KDPM2, LMS and PNDM cannot.

        Dynamic thresholding divides by a quantile of |x̂_0| between 1 and `sample_max_value`.
        """
        clamps = self.x0 is not None
        if "clip_sample" in self._parameters:
            return {"clip_sample": clamps, "clip_sample_range": 1.0}
        if "thresholding" in self._parameters:
            return {"thresholding": clamps, "sample_max_value": 1.0}
        return {}

    @cached_property
    def _parameters(self) -> set[str]:
        return {*signature(getattr(schedulers, self.scheduler).__init__).parameters} - {"self"}


class _NoiseOfStreams(TorchFunctionMode):
    """Inside, torch.randn is the noise of our streams: schedulers draw from nothing else.

    Some take noise as an argument of `step`, some a generator, some neither; what they all have in
    common is that call. A generator of torch cannot give numbers of ours.
    """

    def __init__(self, noise: Noise) -> None:
        super().__init__()
        self.noise = noise

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self.noise.normal() if func is torch.randn else func(*args, **(kwargs or {}))
