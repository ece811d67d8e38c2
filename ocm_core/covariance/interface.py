"""The interface of a covariance method, and the reverse step that it is asked about.

A method looks once at a prediction (`step_covariance`) and answers with a function from any step
t → s to the covariance of that step, a `Covariance` (`diffusion/gaussian.py`): diagonal or not.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from pydantic import BaseModel, ConfigDict
from torch import Tensor

from ocm_core.diffusion.denoiser import AnyPrediction, Model, Prediction
from ocm_core.diffusion.gaussian import Covariance, Diagonal
from ocm_core.diffusion.kernels import Kernel
from ocm_core.diffusion.schedule import predict_x0
from ocm_core.diffusion.transition import Transition
from ocm_core.errors import OcmError
from ocm_core.rng.noise import Noise
from ocm_core.shapes import Batch, Labels

Need = Literal["head", "moments", "nothing"]


class ClipCounter:
    """Counts that stay on the device until somebody reads them."""

    def __init__(self) -> None:
        self._counts: dict[str, int | Tensor] = {}

    def add(self, what: str, number: int | Tensor) -> None:
        self._counts[what] = self._counts.get(what, 0) + number

    def read(self) -> Counter[str]:
        """Return the counts; this waits for the device."""
        return Counter({what: int(count) for what, count in self._counts.items()})


@dataclass(frozen=True)
class Clip:
    """Limits on x̂_0 (±`x0`) and on C (`c_min` … `c_max`); None switches one off."""

    x0: float | None = None
    c_min: float | None = 0.0
    c_max: float | None = None

    def limit_x0(self, x0: Batch) -> Batch:
        """Return x̂_0 within the limits."""
        return x0 if self.x0 is None else x0.clamp(-self.x0, self.x0)

    def limit_c(self, c: Tensor, counter: ClipCounter) -> Tensor:
        """Clamp, and count what was clamped."""
        counter.add("entries", c.numel())
        if self.c_min is not None:
            counter.add("below", (c < self.c_min).sum())
            c = c.clamp(min=self.c_min)
        if self.c_max is not None:
            counter.add("above", (c > self.c_max).sum())
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
    counter: ClipCounter = field(default_factory=ClipCounter)
    posterior_factor: float | Tensor = 1.0  # f; by coefficient, where C has a basis

    def variance(self, c: Tensor) -> Tensor:
        """Σ = floor + f · gain · C with C = (b_t / ᾱ_t) c, for entries or eigenvalues of c."""
        return self.added(self.clip.limit_c(self.transition.posterior_scale * c, self.counter))

    def added(self, posterior: Tensor) -> Tensor:
        """Return floor + f · gain · C."""
        gain = self.posterior_factor * self.kernel.gain(self.transition)
        return self.kernel.floor(self.transition) + gain * posterior

    def x0(self, prediction: AnyPrediction) -> Batch:
        """Return x̂_0, within the limits."""
        step = self.transition
        x0 = predict_x0(prediction.x, prediction.eps, step.alpha_bar_t, step.b_t)
        return self.clip.limit_x0(x0)

    def mean(self, prediction: AnyPrediction) -> Batch:
        """Return the mean of x_s."""
        return self.kernel.mean(self.transition, prediction.x, self.x0(prediction), prediction.eps)


StepCovariance = Callable[[ReverseStep], Covariance]


class Look(NamedTuple):
    """The line of a method in every chart."""

    hue: str = "purple"  # a colour of the pages' palette
    marker: str = "star"
    dash: str = "solid"
    width: float = 1.8


class Profile(NamedTuple):
    """How pages describe and draw a method."""

    about: str  # a line of words
    equation: str = ""
    line: Look = Look()
    group: Literal["Learned", "Exact Jacobian", "Probed while sampling", "Fixed"] = "Learned"


class CovarianceMethod(BaseModel, ABC):
    """A method's fields are its options; the class says what it needs and where it is defined."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    kernels: ClassVar[frozenset[str] | None] = None  # those it is defined for; None: any
    fixed_variance: ClassVar[bool] = False  # a choice, not an estimate: `beta` and the like
    state_free: ClassVar[bool] = False  # an estimate that is one number per t, whatever x_t
    is_diagonal: ClassVar[bool] = True  # whether Σ is `Diagonal`, and may have a basis besides
    has_density: ClassVar[bool] = True  # whether Σ has a diagonal and a determinant, as bounds need
    needs: ClassVar[Need] = "nothing"  # what must be trained or estimated beforehand
    spectrum: ClassVar[str] = ""  # the basis whose spectrum it reads; "" for none
    profile: ClassVar[Profile] = Profile("a covariance method of your own", line=Look(dash="dot"))
    label: str

    @property
    def options(self) -> dict[str, Any]:
        """Return the options by name, defaults included."""
        return self.model_dump(exclude={"label"})

    def defined_for(self, kernel: str) -> bool:
        """Say whether the method gives a covariance for the steps of this kernel."""
        return self.kernels is None or kernel in self.kernels

    def jacobian_products(self, dimension: int) -> int:
        """Return how many vector-Jacobian products the method takes per network evaluation."""
        return 0

    def extra_work(self, dimension: int) -> str:
        """Say in words what a step costs beyond the network."""
        if products := self.jacobian_products(dimension):
            return f"{products} backward pass{'' if products == 1 else 'es'}"
        return "its head" if self.needs == "head" else "none"

    def final_sigma(self, limit: float | None) -> float | None:
        """Return the limit on σ at the step into τ_1: as published, none for fixed variances."""
        return None if self.fixed_variance else limit

    @abstractmethod
    def step_covariance(self, prediction: AnyPrediction, noise: Noise) -> StepCovariance:
        """Look once at x_t; the answer gives the covariance of any step that leaves from it."""


class PosteriorMethod(CovarianceMethod):
    """A method that is an estimate of c(x_t, t)."""

    def step_covariance(self, prediction: AnyPrediction, noise: Noise) -> StepCovariance:
        c = prediction.combine(self.c)
        return lambda step: Diagonal(step.variance(c))

    @abstractmethod
    def c(self, prediction: Prediction) -> Tensor:
        """Return c(x_t, t)."""

    def by_entry(self, prediction: Prediction) -> Tensor:
        """Return c of each entry of x_0."""
        return self.c(prediction)


class FixedMethod(CovarianceMethod):
    """A method that is a choice of σ² for each step, whatever x_t."""

    fixed_variance: ClassVar[bool] = True

    def step_covariance(self, prediction: AnyPrediction, noise: Noise) -> StepCovariance:
        x = prediction.x
        return lambda step: Diagonal(x.new_full((1,) * x.ndim, self.sigma2(step)))

    @abstractmethod
    def sigma2(self, step: ReverseStep) -> float:
        """Return the variance σ² of the step."""


def c_from_jacobian(prediction: Prediction, diagonal: Batch) -> Batch:
    """c = 1 - √b_t diag J."""
    return 1.0 - prediction.marginal[1].sqrt() * diagonal


def c_times(prediction: AnyPrediction, v: Batch) -> Batch:
    """Return (I - √b_t Jᵀ) v, by one backward pass."""
    return prediction.combine(lambda p: v - p.marginal[1].sqrt() * p.vjp(v))


def predict(
    model: Model,
    methods: Iterable[CovarianceMethod],
    x: Batch,
    t: int,
    label: Labels,
    graph: bool = False,
) -> AnyPrediction:
    """Evaluate once for all methods; the graph is kept where one of them reads the Jacobian."""
    graph = graph or any(method.jacobian_products(1) for method in methods)
    with torch.set_grad_enabled(graph):
        return model.predict(x.detach().requires_grad_(graph), t, label)


def check_defined(method: CovarianceMethod, kernel: Kernel) -> None:
    """Raise an error if a method has no covariance for the steps of a kernel."""
    if not method.defined_for(name := kernel.name):
        only = ", ".join(sorted(method.kernels or ())) or "solvers of diffusers"
        raise OcmError(f"method '{method.label}' is not defined for {name}; it is for {only}")
