"""Is a network a posterior mean? Then c = I - √b J is symmetric, no vᵀ c v is negative, and on the
data of its training E‖ε - ε̂‖² = E tr c (Theorem 1 of the paper, under any data).

A network that was distilled into few steps draws samples instead, and one with guidance inside
belongs to other data. The last condition tells such networks apart best: perfect students of known
mixtures have a nearly symmetric Jacobian, too (tests/core/test_jacobian.py).
"""

from math import log
from typing import NamedTuple

import numpy as np
import torch

from ocm_core.diffusion.denoiser import Denoiser
from ocm_core.diffusion.schedule import q_sample
from ocm_core.rng.noise import Noise
from ocm_core.shapes import Batch, Labels

LEVELS = (0.3, 1.0, 3.0)  # σ / α, where the network has something to say
PROBES = 6
# Trained networks of ours have an asymmetry of 0.2 to 0.3 and a ratio of 0.9 to 1.6.
MOST_ASYMMETRY, MOST_NEGATIVE, MOST_RATIO = 0.6, 0.05, 2.5


class JacobianProbe(NamedTuple):
    """What random products with c say of a network."""

    asymmetry: float  # ‖c - cᵀ‖ / (√2 ‖c‖) without the diagonal: 1 has none, 0 a posterior mean
    negative: float  # share of vᵀ c v
    ratio: float  # E‖ε - ε̂‖² / E tr c: of the noise levels, the one that is farthest from 1

    @property
    def is_covariance(self) -> bool:
        """Tell whether c may be a covariance."""
        fits = abs(log(self.ratio)) <= log(MOST_RATIO) if self.ratio > 0 else False
        return fits and self.asymmetry <= MOST_ASYMMETRY and self.negative <= MOST_NEGATIVE

    def __str__(self) -> str:
        return (
            f"its Jacobian: asymmetry {self.asymmetry:.2f} (at most {MOST_ASYMMETRY}),"
            f" {self.negative:.0%} of products negative (at most {MOST_NEGATIVE:.0%}), squared"
            f" error over trace {self.ratio:.2f} ({1 / MOST_RATIO} to {MOST_RATIO})"
        )


def probe(denoiser: Denoiser, x0: Batch, label: Labels, noise: Noise) -> JacobianProbe:
    """Take random products with the network's Jacobian at a few noise levels of these items."""
    schedule, found = denoiser.schedule, []
    levels = np.sqrt(schedule.b[1:] / schedule.alpha_bar[1:])
    for level in LEVELS:
        t = 1 + int(np.abs(np.log(levels / level)).argmin())
        (alpha_bar, b), eps = schedule.marginal(t), noise.normal()
        seen = denoiser.predict(q_sample(x0, eps, alpha_bar, b), t, label)
        v = [noise.normal() for _ in range(PROBES)]
        cv = [one - b**0.5 * seen.vjp(one) for one in v]
        flat = (torch.stack(part).flatten(2).transpose(0, 1).double() for part in (v, cv))
        products = torch.einsum("nid,njd->nij", *flat)  # item, i, j
        quadratic = products.diagonal(dim1=-2, dim2=-1)  # of mean tr c
        skew, others = products - products.mT, products.triu(1) + products.tril(-1)
        asymmetry = (0.5 * skew.square().sum() / others.square().sum().clamp(min=1e-30)).sqrt()
        squared = (eps - seen.eps).double().square().flatten(1).sum(1).mean()
        negative = (quadratic < 0).double().mean()
        found.append([float(asymmetry), float(negative), float(squared / quadratic.mean())])
    asymmetries, negatives, ratios = zip(*found, strict=True)
    farthest = max(ratios, key=lambda ratio: abs(log(ratio)) if ratio > 0 else float("inf"))
    return JacobianProbe(max(asymmetries), max(negatives), farthest)
