"""What a covariance method is, what it declares, and the step it is asked about."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import torch
from pydantic import BaseModel, ConfigDict
from torch import Tensor

from ocm_core.diffusion.denoiser import AnyPrediction, Model, Prediction
from ocm_core.diffusion.gaussian import Covariance, Diagonal
from ocm_core.diffusion.transition import Kernel, Transition
from ocm_core.errors import OcmError
from ocm_core.rng.noise import Noise
from ocm_core.shapes import Batch, Labels

Need = Literal["head", "moments", "nothing"]


@dataclass(frozen=True)
class Clip:
    """Limits on x̂_0 (±`x0`) and on C (`c_min` … `c_max`); None switches one off."""

    x0: float | None = None
    c_min: float | None = 0.0
    c_max: float | None = None

    def limit_x0(self, x0: Batch) -> Batch:
        return x0 if self.x0 is None else x0.clamp(-self.x0, self.x0)

    def limit_c(self, c: Tensor, tally: Counter[str]) -> Tensor:
        """Clamp, and count what was clamped."""
        tally["entries"] += c.numel()
        if self.c_min is not None:
            tally["below"] += int((c < self.c_min).sum())
            c = c.clamp(min=self.c_min)
        if self.c_max is not None:
            tally["above"] += int((c > self.c_max).sum())
            c = c.clamp(max=self.c_max)
        return c


NON_NEGATIVE = Clip()
UNCLIPPED = Clip(c_min=None)


@dataclass(frozen=True)
class ReverseStep:
    """One step t → s of a kernel, with its limits and the count of clamped values."""

    transition: Transition
    kernel: Kernel
    clip: Clip = UNCLIPPED
    tally: Counter[str] = field(default_factory=Counter)

    def through(self, c: Tensor) -> Diagonal:
        """Σ = floor + gain · C with C = (b_t / ᾱ_t) c."""
        posterior = self.clip.limit_c(self.transition.posterior_scale * c, self.tally)
        kernel, step = self.kernel, self.transition
        return Diagonal(kernel.floor(step) + kernel.gain(step) * posterior)

    def fixed(self, variance: float, like: Batch) -> Diagonal:
        return Diagonal(
            torch.full((1,) * like.ndim, variance, dtype=like.dtype, device=like.device)
        )

    def mean(self, prediction: AnyPrediction) -> Batch:
        step = self.transition
        x0 = self.clip.limit_x0(step.predict_x0(prediction.x, prediction.eps))
        return self.kernel.mean(step, prediction.x, x0, prediction.eps)


StepCovariance = Callable[[ReverseStep], Covariance]


class CovarianceMethod(BaseModel, ABC):
    """A method's fields are its options; the class says what it needs and where it is defined."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    samplers: ClassVar[frozenset[str]] = frozenset({"ddpm", "ddim"})
    reads_jacobian: ClassVar[bool] = False  # when it looks: the prediction then keeps its graph
    label: str

    @property
    def needs(self) -> Need:
        return "nothing"

    @abstractmethod
    def step_covariance(self, prediction: AnyPrediction, noise: Noise) -> StepCovariance:
        """Look once at x_t; the answer gives the covariance of any step that leaves from it."""


class PosteriorMethod(CovarianceMethod):
    """A method that is an estimate of c(x_t, t)."""

    def step_covariance(self, prediction: AnyPrediction, noise: Noise) -> StepCovariance:
        c = prediction.combine(self.c)
        return lambda step: step.through(c)

    @abstractmethod
    def c(self, prediction: Prediction) -> Tensor: ...


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
