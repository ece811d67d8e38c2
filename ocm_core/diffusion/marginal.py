"""The noisy marginal q(x_t | x_0) = N(√ᾱ_t x_0, b_t I), and what follows from it at one point.

ᾱ_t and b_t are numbers, or tensors that broadcast against the batch (`Schedule.at`).
"""

from __future__ import annotations

from math import sqrt
from typing import TypeVar

from torch import Tensor

from ocm_core.shapes import Batch

Factor = TypeVar("Factor", float, Tensor)


def q_sample(x0: Batch, noise: Batch, alpha_bar: Factor, b: Factor) -> Batch:
    """x_t = √ᾱ_t x_0 + √b_t ε."""
    return _root(alpha_bar) * x0 + _root(b) * noise


def predict_x0(x: Batch, eps: Batch, alpha_bar: Factor, b: Factor) -> Batch:
    """x̂_0 = (x_t - √b_t ε̂) / √ᾱ_t."""
    return (x - _root(b) * eps) / _root(alpha_bar)


def predict_eps(x: Batch, x0: Batch, alpha_bar: Factor, b: Factor) -> Batch:
    """ε̂ = (x_t - √ᾱ_t x̂_0) / √b_t."""
    return (x - _root(alpha_bar) * x0) / _root(b)


def posterior_scale(alpha_bar: Factor, b: Factor) -> Factor:
    """b_t / ᾱ_t, which turns c into C = Cov[x_0 | x_t]."""
    return b / alpha_bar


def _root(value: Factor) -> Factor:
    return value.sqrt() if isinstance(value, Tensor) else sqrt(value)
