"""Where samples begin: at N(0, I), or at the Gaussian of q(x_t) where t is far below T.

Optimal timesteps may end where much of the data is left: the bound pays for that with its prior
term, and samples from N(0, I) show it as noise.
"""

import logging
from dataclasses import dataclass
from math import log, sqrt
from typing import Self

from jaxtyping import Float
from torch import Tensor

from ocm_core.diffusion import basis as bases
from ocm_core.diffusion.basis import Basis
from ocm_core.diffusion.gaussian import Correlated
from ocm_core.diffusion.schedule import Schedule
from ocm_core.diffusion.timesteps import Timesteps
from ocm_core.shapes import Batch

LARGE = 0.05  # nats per dimension of the prior's term, where ᾱ_t is about 0.1
LOG = logging.getLogger("ocm")


@dataclass(frozen=True)
class DataGaussian:
    """The mean of the data, and the variance ρ of each coefficient of its cosine transform."""

    mean: Tensor
    basis: Basis
    variance: Float[Tensor, "1 ..."]

    @classmethod
    def of(cls, x0: Batch) -> Self:
        """Estimate both from data."""
        mean, basis = x0.double().mean(0), bases.build("dct", x0)
        squares = basis.coefficients(x0.double() - mean).square()
        return cls(mean, basis, squares.mean(0, keepdim=True))

    def at(self, noise: Batch, alpha_bar: float, b: float) -> Batch:
        """Turn normal draws into draws of the Gaussian of q(x_t)."""
        mean, covariance = self.gaussian(noise, alpha_bar, b)
        return mean + covariance.scale(noise)

    def gaussian(self, like: Batch, alpha_bar: float, b: float) -> tuple[Batch, Correlated]:
        """Return mean and covariance of N(√ᾱ_t μ, U (ᾱ_t ρ + b_t) Uᵀ)."""
        spread = Correlated(self.basis, (alpha_bar * self.variance + b).to(like))
        return sqrt(alpha_bar) * self.mean.to(like), spread


def warn_of_prior(schedule: Schedule, timesteps: Timesteps) -> None:
    """Warn where the term of N(0, I), -½ log b_t for data of unit size, is large."""
    alpha_bar, b = schedule.marginal(timesteps[-1])
    if (nats := -0.5 * log(b)) > LARGE:
        LOG.warning(
            "timesteps end at %d of %d, where %.0f %% of the signal's variance is left: the bound"
            " pays up to %.2g nats per dimension for that, and samples from N(0, I) show noise;"
            " begin with the data's Gaussian (api: start=images, ocm sample: --from-data), take a"
            " method that learns its covariance, more steps, or even timesteps",
            *(timesteps[-1], schedule.steps, 100 * alpha_bar, nats),
        )
