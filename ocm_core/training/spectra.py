"""Estimate the spectrum ρ_k(t) = E[(Uᵀ(x_0 - x̂_0))_k²], x̂_0 within the limits of samples.

It is positive, and its relative error is √(2 / images). The other estimate, from the mean square of
ε̂ along U, is a difference of nearly equal numbers, and negative at large t.
"""

from collections.abc import Iterable

import torch
from jaxtyping import Float64
from torch import Tensor

from ocm_core.covariance.interface import UNCLIPPED, Clip
from ocm_core.diffusion import timesteps as rules
from ocm_core.diffusion.basis import Basis, Spectrum
from ocm_core.diffusion.denoiser import Denoiser
from ocm_core.diffusion.schedule import Schedule, predict_x0, q_sample
from ocm_core.rng.batches import BatchRng, batches
from ocm_core.schema.experiment import SpectrumParams
from ocm_core.schema.timesteps import PowerTimesteps
from ocm_core.training.batches import Items

_LEAST = 1e-6  # of the mean: data that never vary have no error along some vectors


def grid(schedule: Schedule, settings: SpectrumParams) -> tuple[int, ...]:
    """Return the timesteps at which the spectrum is estimated."""
    rule = PowerTimesteps(exponent=2.0, first=1)
    return rules.grid(rule, schedule, min(settings.points, schedule.steps))


@torch.no_grad()
def variances(
    denoiser: Denoiser,
    items: Items,
    basis: Basis,
    t: int,
    settings: SpectrumParams,
    clip: Clip = UNCLIPPED,
    device: str = "cpu",
) -> Float64[Tensor, "..."]:
    """Return ρ(t) along the vectors of a basis."""
    total = torch.zeros((), dtype=torch.float64)
    marginal = denoiser.schedule.marginal(t)
    for rows in batches(settings.images, settings.batch_size):
        rng = BatchRng(settings.seed, t, settings.images, device, rows=rows)
        x0, label = items.batch(rng)
        x = q_sample(x0, rng.normals(tuple(x0.shape[1:])), *marginal)
        found = clip.limit_x0(predict_x0(x, denoiser.predict(x, t, label).eps, *marginal))
        total = total + (basis.coefficients(x0 - found) ** 2).double().sum(0).cpu()
    mean = total / settings.images
    return mean.clamp(min=_LEAST * float(mean.mean()))


def spectrum_of(basis: Basis, times: Iterable[int], values: Iterable[Tensor]) -> Spectrum:
    """Return the spectrum of estimates on a grid."""
    return Spectrum(basis, tuple(times), torch.stack([value.log() for value in values]))
