"""Trajectories with their log-densities, and the importance weights that follow from them.

log w = log p̃(x_0) + Σ log q(x_t | x_s) - log N(x_T) - Σ log p(x_s | x_t) has E_p[w] = Z = ∫ p̃ for
any covariance, order and timesteps, if the last step draws, too. Where p̃ is the density of the
data, E_q[log w] is the path KL: of the forward process and the model, over whole trajectories.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from math import log, sqrt
from typing import ClassVar, NamedTuple, Self

import torch
from jaxtyping import Float64
from torch import Tensor

from ocm_core.diffusion.denoiser import AnyPrediction, Model
from ocm_core.diffusion.gaussian import Covariance, Diagonal
from ocm_core.diffusion.schedule import Schedule, q_sample
from ocm_core.diffusion.timesteps import Timesteps
from ocm_core.errors import OcmError
from ocm_core.rng.noise import Noise
from ocm_core.sampling.recipe import Recipe, Stepper
from ocm_core.shapes import Batch, Labels, PerSample

LogDensity = Callable[[Batch], PerSample]  # of x_0; it need not be normalised
LogWeights = Float64[Tensor, " batch"]


class Importance(NamedTuple):
    """What weights say, with standard errors: these see no region that no sample has reached."""

    weights: LogWeights  # self-normalised: their sum is 1
    ess: float  # 1 / Σ w²: the effective sample size, as a share of the samples
    ess_error: float
    log_z: float
    log_z_error: float

    @classmethod
    def of(cls, log_weights: LogWeights) -> Self:
        """Normalise weights that are given as their logarithm; of density 0 it is -∞."""
        count = len(log_weights)
        if bool(log_weights.isnan().any()) or not bool(log_weights.isfinite().any()):
            raise OcmError(
                "log-weights: NaN, or all of density zero; expected the logarithm of a density"
                " that is finite at some samples"
            )
        weights = log_weights.softmax(0)
        ratio = count * weights
        ess = 1.0 / float(ratio.square().mean())
        error = float((2 * ratio - ess * ratio.square()).std()) * ess / sqrt(count)
        log_z = float(log_weights.logsumexp(0)) - log(count)
        return cls(weights, ess, error, log_z, sqrt(max(1.0 / ess - 1.0, 0.0) / count))


@dataclass(frozen=True)
class WeighedSamples:
    """Samples x_0, and log-densities of the trajectories that led there."""

    x: Batch
    log_p: LogWeights  # log p(x_0, …, x_T) of the model
    log_q: LogWeights  # log q(x_1, …, x_T | x_0) of the forward process

    def log_weights(self, log_density: LogDensity) -> LogWeights:
        """Return log w for a density of x_0, given as its logarithm but for a constant."""
        found = log_density(self.x)
        if found.shape != self.log_p.shape:
            said = f"{tuple(found.shape)} for {len(self.x)} samples"
            raise OcmError(f"log_density: shape {said}; expected one number for each")
        return found.double() + self.log_q - self.log_p

    def importance(self, log_density: LogDensity) -> Importance:
        """Return self-normalised weights, the effective sample size and log Z."""
        return Importance.of(self.log_weights(log_density))

    @classmethod
    def joined(cls, parts: Iterable[Self]) -> Self:
        """Join batches."""
        fields = zip(*((part.x, part.log_p, part.log_q) for part in parts), strict=True)
        return cls(*(torch.cat(field) for field in fields))


class WeighingStepper(Stepper):
    """Steps that sum log-densities, of what they draw or along a given trajectory."""

    noisy_end: ClassVar[bool] = True

    def __init__(self, recipe: Recipe, schedule: Schedule, given: Iterable[Batch] = ()) -> None:
        super().__init__(recipe, schedule)
        self.given = [*given]  # from x_0 up
        self.log_p, self.log_q = torch.zeros(()), torch.zeros(())

    def begin(self, noise: Noise) -> Batch:
        x = self.given.pop() if self.given else super().begin(noise)
        mean, covariance = torch.zeros_like(x), Diagonal(torch.ones_like(x[:1]))
        if self.recipe.start is None:
            self.log_p = _log_density(x, mean, covariance)
        else:
            marginal = self.schedule.marginal(self.recipe.timesteps[-1])
            self.log_p = _log_density(x, *self.recipe.start.gaussian(x, *marginal))
        return x

    def step(self, prediction: AnyPrediction, t: int, noise: Noise) -> Batch:
        mean, covariance, s = self.gaussian(prediction, t, noise)
        if covariance is None:
            raise OcmError(f"the step from timestep {t} has no covariance, and so no density")
        x = self.given.pop() if self.given else mean + covariance.scale(noise.normal())
        self.log_p = self.log_p + _log_density(x, mean, covariance)
        alpha_bar, b = (float(table[s]) for table in self.schedule.skips_to(t))
        forward = Diagonal(x.new_full((1,) * x.ndim, b, dtype=torch.float64))
        above = prediction.x.detach().double()
        self.log_q = self.log_q + _log_density(above, sqrt(alpha_bar) * x.double(), forward)
        return x


def _log_density(x: Batch, mean: Batch, covariance: Covariance) -> LogWeights:
    """Return log N(x; μ, Σ)."""
    return covariance.log_density(x - mean).double()


@torch.no_grad()
def weigh(
    recipe: Recipe, model: Model, noise: Noise, label: Labels = None, x0: Batch | None = None
) -> WeighedSamples:
    """Draw trajectories of the model, or from x_0 those of the forward process, and weigh them."""
    method, schedule = recipe.method.label, model.schedule
    if not recipe.method.has_density:
        raise OcmError(f"method '{method}' has no density, and so no log-probability")
    given = () if x0 is None else forward_trajectory(schedule, recipe.timesteps, x0, noise)
    stepper = WeighingStepper(recipe, schedule, given)
    x = recipe.draw(model, noise, label, stepper=stepper).x
    if bool((x.flatten(1).isfinite().all(1) & ~stepper.log_p.isfinite()).any()):
        said = f"with {recipe.kernel.name} steps of method '{method}' have no variance"
        raise OcmError(f"log-probability: {said}, and so no density; take ddpm")
    return WeighedSamples(x, stepper.log_p, stepper.log_q)


def forward_trajectory(
    schedule: Schedule, timesteps: Timesteps, x0: Batch, noise: Noise
) -> Iterator[Batch]:
    """Yield x_0 and a draw of x_t ~ q(x_t | x_s) at each timestep after it."""
    yield (x := x0)
    for s, t in pairwise((0, *timesteps)):
        alpha_bar, b = (float(table[s]) for table in schedule.skips_to(t))
        yield (x := q_sample(x, noise.normal().to(x), alpha_bar, b))
