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

from dataclasses import dataclass, replace
from math import prod, sqrt
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

from ocm_core import covariance
from ocm_core.covariance.interface import CovarianceMethod, ReverseStep, c_times, predict
from ocm_core.diffusion.denoiser import AnyPrediction, Denoiser, Model
from ocm_core.diffusion.gaussian import sum_dims
from ocm_core.diffusion.kernels.ddpm import Ddpm
from ocm_core.diffusion.transition import transition
from ocm_core.errors import OcmError, unknown
from ocm_core.metrics.crps import crps, inside
from ocm_core.progress import Progress
from ocm_core.rng.noise import Noise, NoiseFor, SampleNoise
from ocm_core.sampling.recipe import Recipe, Stepper
from ocm_core.shapes import Batch, Images, Labels, PerSample
from ocm_core.uses.denoise import check_estimate, check_spectrum, posterior
from ocm_core.uses.linear import Measured, check_operator, times

AlgorithmName = Literal["kalman", "mmps", "dps", "pigdm"]
PLAIN = covariance.build("beta_tilde")  # the method of those that take none
_DRAW = 1 << 32  # of the index of a draw: the lower bits are the image's


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

    def scores(self, measured: Measured, x0: Images) -> dict[str, PerSample]:
        """Return what draws are worth, image by image, where x_0 is known."""
        draws, truth = self.draws.double(), x0.double()
        error = (draws.mean(1) - truth).square().flatten(1).mean(1)
        return {
            "crps": crps(draws, truth).flatten(1).mean(1),
            "restored_psnr": -10 * (error / 4).log10(),  # of data in [-1, 1]
            "restored_coverage": inside(draws, truth).flatten(1).mean(1),
            "data_chi2": measured.chi2(self.draws),
        }


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
        match self.how.name:
            case "kalman":
                x0, further = self._drawn(step, prediction, noise), None
            case "mmps":
                x0, further = self._mean_of_moments(step, prediction), None
            case _:
                x0 = step.x0(prediction).detach()
                further = c_times(prediction, self._pull(step, x0))
        x = step.kernel.mean(step.transition, prediction.x, x0, prediction.eps).detach()
        x = x if further is None else x + further
        variance = step.transition.beta_tilde
        return x + sqrt(variance) * noise.normal() if step.transition.s else x

    def _drawn(self, step: ReverseStep, prediction: AnyPrediction, noise: Noise) -> Batch:
        """Draw x_0 given x_t and y: of `kalman`."""
        recipe, last = self.recipe, transition(self.schedule, 0, step.transition.t)
        found = posterior(prediction, recipe.method, last, noise, recipe.clip)
        drawn = found.mean + found.covariance.scale(noise.normal().to(found.mean))
        residual = self.measured.residual(drawn) - self.measured.sigma * self.noise.normal()
        return drawn + self.measured.gain(found.covariance.times, residual, self.how.tolerance)

    def _mean_of_moments(self, step: ReverseStep, prediction: AnyPrediction) -> Batch:
        """Return the mean of x_0 given x_t and y, where C = (b_t / ᾱ_t) c: of `mmps`."""
        x0, scale = step.x0(prediction).detach(), step.transition.posterior_scale

        def c(v: Batch) -> Batch:
            return scale * c_times(prediction, v)

        return x0 + self.measured.gain(c, self.measured.residual(x0), 0.0, self.how.iterations)

    def _pull(self, step: ReverseStep, x0: Batch) -> Batch:
        """Return what c is multiplied with, √ᾱ_t ∂x̂_0/∂x_t, of `pigdm` and `dps`.

        b_t Aᵀ (σ² + b_t A Aᵀ)⁻¹ r with r = y - A x̂_0, or ζ Aᵀ r / (√ᾱ_t ‖r‖).
        """
        measured, residual = self.measured, self.measured.residual(x0)
        if self.how.name == "pigdm":
            return measured.gain(lambda v: step.transition.b_t * v, residual, self.how.tolerance)
        length = sum_dims(residual**2).sqrt().clamp(min=1e-12)
        scale = self.how.scale / sqrt(step.transition.alpha_bar_t)
        return measured.physics.A_adjoint(times(scale / length, residual))


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
    progress: Progress[int] = iter,
) -> Restored:
    """Return `count` draws of each image given y; the j-th of image i is the same in any batch."""
    recipe, shape = check(denoiser, measured, recipe, algorithm, labels), measured.shape
    if count < 2:
        raise OcmError(f"count = {count}: a deviation takes 2 draws of each image at least")
    images, y = len(measured.y), measured.y
    pairs = [(image, draw) for image in range(images) for draw in range(count)]
    cut = [pairs[at : at + batch_size] for at in range(0, len(pairs), batch_size)]
    found = list[Tensor]()
    for place in progress(range(len(cut))):
        rows = [image for image, _ in cut[place]]
        indices = [image + draw * _DRAW for image, draw in cut[place]]
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
    check_operator(measured)
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
