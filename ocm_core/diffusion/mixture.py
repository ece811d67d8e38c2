"""Equal-weight mixtures of isotropic Gaussians: everything about their diffusion is closed form.

With s² = ᾱ σ² + b, the noisy marginal is Σ_k N(√ᾱ μ_k, s² I) / n. Given x_t and the component k,
x_0 has mean m_k = μ_k + (√ᾱ σ² / s²)(x_t - √ᾱ μ_k) and covariance (σ² b / s²) I.
"""

from dataclasses import dataclass
from itertools import product
from math import log, pi

import numpy as np
import torch
from jaxtyping import Float, Float64
from numpy import ndarray
from torch import Tensor

from ocm_core.datasets.mixture import GridLayout, MixtureData
from ocm_core.rng.streams import dataset_stream
from ocm_core.shapes import PerPoint, PerSample, Points


@dataclass(frozen=True)
class Mixture:
    """Gaussians of equal weight and variance."""

    means: Float64[Tensor, "modes d"]
    std: float

    @property
    def variance(self) -> float:
        """Return the variance of the data, averaged over the axes."""
        return float(self.means.var(0, correction=0).mean()) + self.std**2

    def draw(self, count: int, source: np.random.Generator) -> Float64[ndarray, "count d"]:
        modes = source.integers(len(self.means), size=count)
        noise = source.standard_normal((count, self.means.shape[1]))
        drawn: ndarray = self.means.numpy()[modes] + self.std * noise
        return drawn

    def log_density(self, x: Points) -> PerSample:
        """log q(x_0), the mean of the components' densities."""
        modes, d = self.means.shape
        squares = (x.unsqueeze(1) - self.means.to(x)).square().sum(-1) / self.std**2
        log_norm = 0.5 * d * log(2 * pi * self.std**2) + log(modes)
        return torch.logsumexp(-0.5 * squares, 1) - log_norm

    def posterior(
        self, x: Points, alpha_bar: PerPoint, b: PerPoint
    ) -> tuple[Points, Float[Tensor, "batch d d"]]:
        """E[x_0 | x_t] and Cov[x_0 | x_t] (the whole matrix)."""
        means, s2 = self.means.to(x), alpha_bar * self.std**2 + b
        offset = x.unsqueeze(1) - alpha_bar.sqrt().unsqueeze(-1) * means
        logits = -0.5 * (offset**2).sum(-1) / s2
        pull = (alpha_bar.sqrt() * self.std**2 / s2).unsqueeze(-1)
        component_means = means + pull * offset
        weights = torch.softmax(logits, dim=1).unsqueeze(-1)
        mean = (weights * component_means).sum(1)
        spread = component_means - mean.unsqueeze(1)
        within = (self.std**2 * b / s2).unsqueeze(-1)
        between = (weights * spread).mT @ spread
        return mean, between + within * torch.eye(x.shape[1], dtype=x.dtype, device=x.device)


def mixture(data: MixtureData) -> Mixture:
    """Return the mixture of x_0: lengths are divided by `data.scale`."""
    layout = data.layout
    if isinstance(layout, GridLayout):
        axis = (np.arange(layout.per_axis) - (layout.per_axis - 1) / 2) * layout.spacing
        means = np.array(list(product(axis, axis)))
    else:
        source, reach = dataset_stream(layout.seed), layout.half_width
        means = source.uniform(-reach, reach, size=(layout.modes, 2))
    return Mixture(torch.from_numpy(means / data.scale), data.std / data.scale)
