"""Error bars in one pass: E[x_0 | y] and Cov[x_0 | y] of noisy images y = x_0 + σ n, n ~ N(0, I).

With σ_t² = b_t / ᾱ_t, √ᾱ_t y is x_t where σ = σ_t. So the mean is x̂_0, and the covariance that of a
DDPM step t → 0, whose floor is 0 and whose gain is 1: C = σ_t² c. Where c is not positive, the
variance is β̃_{1:2}, as in a last step that draws.

Timesteps are whole: the nearest σ_t, by its ratio to σ, stands for σ in the network, and deviations
are σ √c. On the linear schedule of 1000 steps that is within 2 % above σ = 0.1, 1 % above 0.2.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from math import sqrt
from typing import NamedTuple, Self

import numpy as np
import torch
from jaxtyping import Float, Float64
from torch import Tensor

from ocm_core.covariance import class_of
from ocm_core.covariance.interface import (
    NON_NEGATIVE,
    Clip,
    ClipCounter,
    CovarianceMethod,
    ReverseStep,
    predict,
)
from ocm_core.diffusion.denoiser import AnyPrediction, Denoiser, Model
from ocm_core.diffusion.gaussian import Covariance, dimension
from ocm_core.diffusion.kernels.ddpm import Ddpm
from ocm_core.diffusion.schedule import Schedule
from ocm_core.diffusion.transition import Transition, transition
from ocm_core.errors import OcmError
from ocm_core.metrics import mean_and_error
from ocm_core.progress import Progress
from ocm_core.rng.noise import Noise, NoiseFor, SampleNoise
from ocm_core.schema.experiment import Experiment
from ocm_core.shapes import Batch, Images, Labels, PerSample, Times

Sigmas = Float64[Tensor, " image"]  # σ of each image
_QUARTILE = 0.6744897501960817  # Φ⁻¹(3/4): half of all |n| are below it
_BEYOND = 1.1  # the ratio by which σ may be beyond the schedule's
SHARES = torch.arange(1, 10) / 10  # of the intervals whose coverage is measured
_NINETY = 8  # the place of 90 % among the shares
_CONSTANT = 1e-5  # relative deviation, below which all images have the same variance


class Denoised(NamedTuple):
    """Images without their noise, and the standard deviation of what is not known of them."""

    mean: Batch
    std: Batch
    sigma: Sigmas
    timestep: Times  # the one that σ was matched with


class Posterior(NamedTuple):
    """The Gaussian of x_0 given x_t, as one method has it."""

    mean: Batch
    covariance: Covariance
    counter: ClipCounter  # of entries of C below and above the limits


class PosteriorFit(NamedTuple):
    """How well a Gaussian knew x_0, image by image."""

    nll: PerSample  # -log p(x_0) per dimension, in nats
    coverage: Float[Tensor, "batch share"]  # of the intervals of `SHARES` about the mean
    variance: PerSample  # mean over the image, as predicted
    error: PerSample  # mean of (x_0 - x̂_0)²
    clipped: Counter[str]  # entries of C

    @classmethod
    def joined(cls, parts: Iterable[Self]) -> Self:
        """Join batches."""
        *values, counts = zip(*parts, strict=True)
        nll, coverage, variance, error = map(torch.cat, values)
        return cls(nll, coverage, variance, error, sum(counts, Counter()))

    def measures(self) -> Iterator[tuple[str, float, float | None]]:
        """Yield means over images with their standard errors, by the name of the measure."""
        yield "denoising_nll", *mean_and_error(self.nll)
        yield "coverage", *mean_and_error(self.coverage[:, _NINETY])
        yield "calibration_error", float((self.coverage.mean(0) - SHARES).abs().mean()), None
        if self.variance.std() > _CONSTANT * self.variance.mean():
            yield "error_correlation", *correlation(self.variance, self.error)
        yield "denoising_floor", self.clipped["below"] / max(1, self.clipped["entries"]), None
        # of data in [-1, 1]; the same for all methods, which share the mean
        yield "psnr", *mean_and_error(-10 * (self.error / 4).log10())


def correlation(one: PerSample, other: PerSample) -> tuple[float, float]:
    """Return the correlation over images, and its standard error to first order."""
    u, v = ((x - x.mean()) / x.std(correction=0) for x in (one, other))
    r = (u * v).mean()
    influence = u * v - r * (u**2 + v**2) / 2
    return float(r), mean_and_error(influence)[1]


def estimated_sigma(images: Images) -> Sigmas:
    """σ̂ = median |d| / Φ⁻¹(3/4), d the diagonal details of 2×2 pixels (Donoho and Johnstone, 1994).

    d = (x_00 - x_01 - x_10 + x_11) / 2 has the noise's σ and little of a smooth image; fine texture
    is taken for noise.
    """
    if images.ndim != 4 or min(images.shape[-2:]) < 2:
        found = f"found {tuple(images.shape)}"
        raise OcmError(f"sigma: estimated from images of 2×2 pixels or more, {found}; give it")
    rows = images[..., 1:, :] - images[..., :-1, :]
    details = (rows[..., 1:] - rows[..., :-1]) / 2
    return details.abs().flatten(1).median(1).values.double().cpu() / _QUARTILE


def matched_timesteps(schedule: Schedule, sigma: Sigmas) -> Times:
    """Return the t whose log σ_t is nearest to log σ; refuse noise that no timestep has."""
    known = torch.from_numpy(0.5 * np.log(schedule.b[1:] / schedule.alpha_bar[1:]))
    low, high = float(known[0].exp()), float(known[-1].exp())
    wrong = ~((sigma * _BEYOND >= low) & (sigma <= high * _BEYOND))  # NaN is wrong, too
    if bool(wrong.any()):
        place = int(wrong.nonzero()[0, 0])
        found = f"sigma[{place}] = {float(sigma[place]):.4g}"
        raise OcmError(f"{found}: the schedule's noise is from {low:.4g} to {high:.4g}; give such")
    middles = (known[1:] + known[:-1]) / 2
    return torch.bucketize(sigma.log(), middles) + 1


def is_estimate(method: CovarianceMethod | type[CovarianceMethod]) -> bool:
    """Say whether a method estimates Cov[x_0 | x_t], with a diagonal and a density."""
    return method.kernels is None and method.has_density and not method.fixed_variance


def no_estimates(experiment: Experiment, methods: Collection[str]) -> Iterator[str]:
    """Yield what is wrong with those that estimate no Cov[x_0 | x_t] with a diagonal."""
    for label in {*methods} & {*experiment.methods}:
        if not is_estimate(class_of(experiment.methods[label].kind)):
            yield f"'{label}' is no estimate of Cov[x_0 | x_t] with a diagonal; name others"


def check_estimate(method: CovarianceMethod) -> None:
    """Raise an error if a method is no estimate of Cov[x_0 | x_t] with a diagonal."""
    if not is_estimate(method):
        expected = "expected an estimate of it with a diagonal, such as ocm, ocm_relative, analytic"
        raise OcmError(f"method '{method.label}': no covariance of x_0 given x_t; {expected}")


@torch.no_grad()
def posteriors(
    model: Model,
    methods: Mapping[str, CovarianceMethod],
    x: Batch,
    t: int,
    noise: Noise,
    label: Labels = None,
    clip: Clip = NON_NEGATIVE,
) -> dict[str, Posterior]:
    """Return the Gaussian of x_0 given x_t by each method, from one pass of the network."""
    prediction = predict(model, methods.values(), x, t, label)
    last = transition(model.schedule, 0, t)
    return {name: posterior(prediction, m, last, noise, clip) for name, m in methods.items()}


def posterior(
    prediction: AnyPrediction, method: CovarianceMethod, last: Transition, noise: Noise, clip: Clip
) -> Posterior:
    """Return the Gaussian of x_0 given x_t by one method; `last` is the step t → 0."""
    step = ReverseStep(last, Ddpm(), clip)
    covariance = method.step_covariance(prediction, noise)(step)
    filled = covariance.filled(last.beta_tilde_schedule_start)
    return Posterior(step.x0(prediction), filled, step.counter)


def denoise(
    denoiser: Denoiser,
    images: Batch,
    method: CovarianceMethod,
    sigma: float | Tensor | None = None,
    *,
    labels: Labels = None,
    clip: Clip = NON_NEGATIVE,
    batch_size: int = 64,
    seed: int = 0,
    progress: Progress[int] = iter,
) -> Denoised:
    """Return x̂_0 and its deviation for images with noise σ, estimated where it is not given.

    Images that are matched with the same timestep share passes. The seed is that of methods that
    draw probes, which are each image's own.
    """
    check_estimate(method)
    _check_images(denoiser, images, method)
    device = next(denoiser.network.parameters(), torch.empty(0)).device
    sigma = _sigma_of_each(images, sigma)
    times = matched_timesteps(denoiser.schedule, sigma)
    mean, std = torch.empty_like(images), torch.empty_like(images)
    alike = [torch.nonzero(times == t).flatten().tolist() for t in sorted({*times.tolist()})]
    cut = [rows[at : at + batch_size] for rows in alike for at in range(0, len(rows), batch_size)]
    for place in progress(range(len(cut))):
        rows = cut[place]
        t = int(times[rows[0]])
        alpha_bar, b = denoiser.schedule.marginal(t)
        noise = SampleNoise(seed, rows, tuple(images.shape[1:]), device, NoiseFor.DEVIATION, t)
        x = sqrt(alpha_bar) * images[rows].to(device)
        label = None if labels is None else labels[rows].to(device)
        found = posteriors(denoiser, {"": method}, x, t, noise, label, clip)[""]
        ratio = (sigma[rows] / sqrt(b / alpha_bar)).view(-1, *(1,) * (x.ndim - 1))
        deviation = found.covariance.diagonal(found.mean).sqrt()
        mean[rows] = found.mean.to(mean)
        std[rows] = deviation.to(std) * ratio.to(std)
    return Denoised(mean, std, sigma, times)


def fit(posterior: Posterior, x0: Batch) -> PosteriorFit:
    """Compare a Gaussian with what was true; its density uses the whole covariance."""
    difference = x0 - posterior.mean
    variance = posterior.covariance.diagonal(difference)
    nll = -posterior.covariance.log_density(difference) / dimension(x0)
    share = torch.erf(difference.abs() / (2 * variance).sqrt())  # of the interval that reaches x_0
    inside = share.flatten(1).unsqueeze(-1) <= SHARES.to(share)
    means = (values.flatten(1).mean(1) for values in (variance, difference**2))
    values = (nll, inside.to(share).mean(1), *means)
    nll, coverage, predicted, error = (value.double().cpu() for value in values)
    return PosteriorFit(nll, coverage, predicted, error, posterior.counter.read())


def _check_images(denoiser: Denoiser, images: Batch, method: CovarianceMethod) -> None:
    shape = tuple(images.shape[1:])
    if not len(images) or not bool(images.isfinite().all()):
        found = "none" if not len(images) else "some that have no numbers (NaN or infinite)"
        raise OcmError(f"images: {found}; expected noisy images, in the scale of data in [-1, 1]")
    check_spectrum(denoiser, method, shape)


def check_spectrum(denoiser: Denoiser, method: CovarianceMethod, shape: tuple[int, ...]) -> None:
    """Raise an error if a method's spectrum is for images of another shape."""
    if method.spectrum and (known := denoiser.spectrum(method.spectrum).basis.shape) != shape:
        raise OcmError(f"images of shape {shape}: the spectrum of '{method.label}' is for {known}")


def _sigma_of_each(images: Batch, sigma: float | Tensor | None) -> Sigmas:
    if sigma is None:
        return estimated_sigma(images)
    given = torch.as_tensor(sigma, dtype=torch.float64).cpu()
    if given.shape not in ((), (len(images),)):
        expected = f"a number, or one for each of {len(images)} images"
        raise OcmError(f"sigma: shape {tuple(given.shape)}; expected {expected}")
    return given.expand(len(images))
