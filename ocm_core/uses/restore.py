"""Restoration: draws of x_0 given y = A x_0 + σ n, n ~ N(0, I), along the timesteps of a recipe.

Given x_t, x_0 is taken for a Gaussian N(x̂_0, C), and given y, too, its mean is x̂_0 + C Aᵀ u with

    (σ² + A C Aᵀ) u = y - A x̂_0,

which conjugate gradients solve by products with A, C and Aᵀ. A diagonal C moves only what A sees;
correlations say something of the rest. The ways differ in C, and in the step that follows:

- `kalman`: C is a covariance method's, and the network is not asked again. x_0 itself is drawn
  (Matheron): x_0 = ξ + C Aᵀ (σ² + A C Aᵀ)⁻¹ (y - σ n - A ξ) with ξ ~ N(x̂_0, C). Then
  x_s ~ q(x_s | x_t, x_0), whose variance is β̃. Where x_0 given x_t is Gaussian with this mean and
  C, draws are exact, whatever the timesteps.
- `mmps` (Rozet et al., 2024): C = (b_t / √ᾱ_t) (∂x̂_0/∂x_t)ᵀ, each product a backward pass, of which
  there are few; a step of DDPM from the mean, with β̃.
- `pigdm` (ΠGDM: Song et al., 2023) adds √ᾱ_t (∂x̂_0/∂x_t)ᵀ Aᵀ (A Aᵀ + (σ²/b_t))⁻¹ (y - A x̂_0) to a
  step of DDPM, as if C were b_t I.
- `dps` (Chung et al., 2023) takes ζ ∂‖y - A x̂_0‖/∂x_t off such a step.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import prod, sqrt
from typing import Literal, NamedTuple, Protocol, get_args

import torch
from torch import Tensor

from ocm_core import covariance
from ocm_core.covariance.interface import CovarianceMethod, ReverseStep, c_times, predict
from ocm_core.diffusion.denoiser import AnyPrediction, Denoiser, Model
from ocm_core.diffusion.gaussian import Diagonal, sum_dims
from ocm_core.diffusion.kernels.ddpm import Ddpm
from ocm_core.diffusion.transition import transition
from ocm_core.errors import OcmError, unknown
from ocm_core.progress import Progress
from ocm_core.rng.noise import Noise, NoiseFor, SampleNoise
from ocm_core.sampling.recipe import Recipe, Stepper
from ocm_core.shapes import Batch, Labels
from ocm_core.uses.denoise import check_estimate, check_spectrum, posterior

AlgorithmName = Literal["kalman", "mmps", "dps", "pigdm"]
PLAIN = covariance.build("beta_tilde")  # the method of those that take none
MOST = 500  # iterations of conjugate gradients without a network
_DRAW = 1 << 32  # of the index of a draw: the lower bits are the image's
_ADJOINT = 1e-3  # how far ⟨A x, v⟩ may be from ⟨x, Aᵀ v⟩, as a share of the norms


class Linear(Protocol):
    """A linear operator, as `deepinv.physics.LinearPhysics` is one; images are in [-1, 1]."""

    def A(self, x: Batch) -> Tensor:  # noqa: N802
        """Return what is seen of images."""

    def A_adjoint(self, y: Tensor) -> Batch:  # noqa: N802
        """Return Aᵀ y."""


@dataclass(frozen=True)
class Algorithm:
    """How y is used: the name, and the options of those that have some."""

    name: AlgorithmName = "kalman"
    iterations: int = 3  # of mmps
    scale: float = 1.0  # ζ of dps
    tolerance: float = 1e-4  # of kalman and pigdm: the residual's norm, relative to the first

    def __post_init__(self) -> None:
        if self.name not in (known := get_args(AlgorithmName)):
            raise OcmError(f"algorithm: {unknown(self.name, known)}")
        if self.iterations < 1:
            raise OcmError(f"iterations = {self.iterations}: expected 1 or more")

    @property
    def takes_method(self) -> bool:
        """Whether it asks a covariance method for C."""
        return self.name == "kalman"

    def passes(self, method: CovarianceMethod, dimension: int) -> int:
        """Return the passes of the network in a step; a backward pass takes as long as two."""
        own = {"kalman": method.jacobian_products(dimension), "mmps": self.iterations}
        return 1 + 2 * own.get(self.name, 1)


KALMAN = Algorithm()


class Restored(NamedTuple):
    """Draws of x_0 given y, with their mean and standard deviation."""

    mean: Batch
    std: Batch
    draws: Tensor  # (image, draw, …)
    passes: int  # of the network for each draw, a backward pass counted as two


@dataclass(frozen=True)
class Measured:
    """What was seen of images: y = A x_0 + σ n."""

    y: Tensor
    physics: Linear
    sigma: float

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape of an image."""
        return tuple(self.physics.A_adjoint(self.y[:1]).shape[1:])

    def residual(self, x0: Batch) -> Tensor:
        """Return y - A x_0."""
        return self.y - self.physics.A(x0)

    def gain(
        self, c: Callable[[Batch], Batch], residual: Tensor, tolerance: float, most: int = MOST
    ) -> Batch:
        """Return C Aᵀ (σ² + A C Aᵀ)⁻¹ r by conjugate gradients, each with one product with C.

        `tolerance` 0 takes as many as there may be; else a system that stays unsolved is refused.
        A direction in which C is not positive is not taken.
        """
        p, left, square = residual, residual, sum_dims(residual**2)
        goal, found = tolerance**2 * square, torch.zeros(())
        for _ in range(most):
            image = c(self.physics.A_adjoint(p))
            seen = self.sigma**2 * p + self.physics.A(image)
            curvature = sum_dims(p * seen)
            usable = (square > goal) & (curvature > 0)
            found = found + _times(torch.where(usable, square / curvature, 0.0), image)
            left = left - _times(torch.where(usable, square / curvature, 0.0), seen)
            last, square = square, torch.where(usable, sum_dims(left**2), square)
            if not bool(((square > goal) & usable).any()):
                break
            p = left + _times(torch.where(usable, square / last, 0.0), p)
        if tolerance and not bool((square <= goal).all()):
            share = float((square / goal).max().sqrt()) * tolerance
            raise OcmError(
                f"sigma = {self.sigma:g}: (σ² + A C Aᵀ) u = y - A x̂_0 is singular, or nearly so:"
                f" a share of {share:.2g} is left of the residual after {most} iterations at most;"
                " give the noise that y has, or a y within reach of A"
            )
        return found


def _times(factor: Tensor, x: Tensor) -> Tensor:
    """Multiply each item by its own number."""
    return factor.view(-1, *(1,) * (x.ndim - 1)) * x


_Found = tuple[Batch, Batch | float]  # x_0, and what is added to the step that it gives


class RestoringStepper(Stepper):
    """Steps of draws, each with what was measured of it."""

    def __init__(
        self, recipe: Recipe, model: Model, measured: Measured, noise: Noise, how: Algorithm
    ) -> None:
        super().__init__(recipe, model.schedule)
        self.measured, self.noise, self.how = measured, noise, how

    def begin(self, noise: Noise) -> Batch:
        return super().begin(noise).to(self.measured.y)

    def predict(self, model: Model, x: Batch, t: int, label: Labels) -> AnyPrediction:
        graph = not self.how.takes_method
        return predict(model, [self.recipe.method], x, t, label, graph)

    def step(self, prediction: AnyPrediction, t: int, noise: Noise) -> Batch:
        step = self.next(t)
        x0, further = getattr(self, f"_{self.how.name}")(step, prediction, noise)
        x = step.kernel.mean(step.transition, prediction.x.detach(), x0, prediction.eps) + further
        variance = step.transition.beta_tilde
        return x + sqrt(variance) * noise.normal() if step.transition.s else x

    def _kalman(self, step: ReverseStep, prediction: AnyPrediction, noise: Noise) -> _Found:
        """Draw x_0 given x_t and y."""
        recipe, last = self.recipe, transition(self.schedule, 0, step.transition.t)
        found = posterior(prediction, recipe.method, last, noise, recipe.clip)
        drawn = found.mean + found.covariance.scale(noise.normal().to(found.mean))
        residual = self.measured.residual(drawn) - self.measured.sigma * self.noise.normal()
        c = found.covariance.times
        return drawn + self.measured.gain(c, residual, self.how.tolerance), 0.0

    def _mmps(self, step: ReverseStep, prediction: AnyPrediction, noise: Noise) -> _Found:
        """Return the mean of x_0 given x_t and y."""
        x0, scale = step.x0(prediction).detach(), step.transition.posterior_scale
        residual = self.measured.residual(x0)

        def c(v: Batch) -> Batch:
            return scale * c_times(prediction, v)

        return x0 + self.measured.gain(c, residual, 0.0, self.how.iterations), 0.0

    def _pigdm(self, step: ReverseStep, prediction: AnyPrediction, noise: Noise) -> _Found:
        """Return x̂_0, and b_t c Aᵀ (σ² + b_t A Aᵀ)⁻¹ (y - A x̂_0), as √ᾱ_t ∂x̂_0/∂x_t is c."""
        x0, b = step.x0(prediction).detach(), step.transition.b_t
        prior = Diagonal(x0.new_full((1,) * x0.ndim, b))
        pulled = self.measured.gain(prior.times, self.measured.residual(x0), self.how.tolerance)
        return x0, c_times(prediction, pulled)

    def _dps(self, step: ReverseStep, prediction: AnyPrediction, noise: Noise) -> _Found:
        """Return x̂_0, and ζ c Aᵀ r / (√ᾱ_t ‖r‖) with r = y - A x̂_0."""
        x0 = step.x0(prediction).detach()
        residual = self.measured.residual(x0)
        scale = self.how.scale / sqrt(step.transition.alpha_bar_t)
        direction = _times(scale / sum_dims(residual**2).sqrt().clamp(min=1e-12), residual)
        return x0, c_times(prediction, self.measured.physics.A_adjoint(direction))


def restore(
    denoiser: Denoiser,
    measured: Measured,
    recipe: Recipe,
    algorithm: Algorithm = KALMAN,
    *,
    count: int = 8,
    labels: Labels = None,
    batch_size: int = 64,
    seed: int = 0,
    first: int = 0,
    progress: Progress[int] = iter,
) -> Restored:
    """Return `count` draws of each image given y; the j-th of image i is the same in any batch.

    `first` is the index of the first image.
    """
    recipe, shape = check(denoiser, measured, recipe, algorithm, labels), measured.shape
    if count < 2:
        raise OcmError(f"count = {count}: a deviation takes 2 draws of each image at least")
    images, y = len(measured.y), measured.y
    pairs = [(image, draw) for image in range(images) for draw in range(count)]
    cut = [pairs[at : at + batch_size] for at in range(0, len(pairs), batch_size)]
    found = list[Tensor]()
    for place in progress(range(len(cut))):
        rows = [image for image, _ in cut[place]]
        indices = [first + image + draw * _DRAW for image, draw in cut[place]]
        own = SampleNoise(seed, indices, shape, y.device, NoiseFor.RESTORATION)
        seen = SampleNoise(seed, indices, tuple(y.shape[1:]), y.device, NoiseFor.MEASUREMENT)
        here = replace(measured, y=y[rows])
        stepper = RestoringStepper(recipe, denoiser, here, seen, algorithm)
        label = None if labels is None else labels[rows].to(y.device)
        found.append(recipe.draw(denoiser, own, label, stepper=stepper).x.to(y))
    draws = torch.cat(found).view(images, count, *shape)
    passes = len(recipe.timesteps) * algorithm.passes(recipe.method, prod(shape))
    return Restored(draws.mean(1), draws.std(1), draws, passes)


def check(
    denoiser: Denoiser, measured: Measured, recipe: Recipe, algorithm: Algorithm, labels: Labels
) -> Recipe:
    """Refuse what cannot be restored; return the recipe, with a method only where one is asked."""
    _check_operator(measured)
    shape = measured.shape
    if not isinstance(recipe.kernel, Ddpm) or recipe.order != 1:
        raise OcmError("restoration: steps are those of DDPM, of order 1; name such a sampler")
    if algorithm.takes_method:
        check_estimate(recipe.method)
        check_spectrum(denoiser, recipe.method, shape)
    else:
        recipe = replace(recipe, method=PLAIN)
    x = measured.y.new_zeros(1, *shape)
    try:
        with torch.no_grad():
            eps = denoiser.predict(x, 1, None if labels is None else labels[:1]).eps
    except (RuntimeError, ValueError) as error:
        raise OcmError(
            f"images of shape {shape}, as Aᵀ y: the network takes others: {error}"
        ) from None
    if eps.shape != x.shape:
        raise OcmError(f"images of shape {shape}, as Aᵀ y: the network gives {tuple(eps.shape)}")
    return recipe


def _check_operator(measured: Measured) -> None:
    """Refuse y or A that cannot be: of other sizes, not linear, or with another adjoint."""
    y, physics, sigma = measured.y, measured.physics, measured.sigma
    if not isinstance(y, Tensor) or not y.is_floating_point() or not y.numel():
        raise OcmError("y: expected a tensor of measurements, the first axis being the image")
    if not bool(y.isfinite().all()):
        raise OcmError("y: has entries that are no numbers (NaN or infinite)")
    if not 0 <= sigma < float("inf"):
        raise OcmError(f"sigma = {sigma:g}: expected the deviation of the noise in y, 0 or more")
    name = type(physics).__name__
    if not (hasattr(physics, "A") and hasattr(physics, "A_adjoint")):
        raise OcmError(f"physics: {name} has no A and A_adjoint; expected a LinearPhysics")
    try:
        v = _wave(y[:1])
        back = physics.A_adjoint(v)
        x = _wave(back).flip(-1)
        seen, twice = physics.A(x), physics.A(2 * x)
    except (RuntimeError, ValueError, AssertionError, TypeError) as error:
        said = f"{name} does not take y of shape {tuple(y.shape)} ({error})"
        raise OcmError(f"physics: {said}; expected an operator for it") from None
    if not isinstance(seen, Tensor) or seen.shape != v.shape:
        found = tuple(seen.shape) if isinstance(seen, Tensor) else type(seen).__name__
        raise OcmError(f"physics: {name} gives {found} for an image, y has {tuple(v.shape)}")
    one, other = float((seen * v).sum()), float((x * back).sum())
    if abs(one - other) > _ADJOINT * float(seen.norm() * v.norm() + x.norm() * back.norm()):
        raise OcmError(f"physics: {name}: A_adjoint is not the adjoint of A ({one:g}, {other:g})")
    if not torch.allclose(twice, 2 * seen, rtol=_ADJOINT, atol=_ADJOINT * float(seen.abs().max())):
        raise OcmError(f"physics: {name} is not linear: A(2 x) is not 2 A(x)")


def _wave(like: Tensor) -> Tensor:
    """Return numbers without a pattern, in the shape of a batch."""
    place = torch.arange(like.numel(), dtype=torch.float64, device=like.device)
    return (place * place + place).cos().to(like.dtype).view_as(like)
