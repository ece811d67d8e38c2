"""Products of a prediction's Jacobian with probe vectors, and the Jacobian itself."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from ocm_core.diffusion.denoiser import Prediction
from ocm_core.diffusion.gaussian import dimension
from ocm_core.shapes import Batch


def hutchinson(prediction: Prediction, probes: Sequence[Batch]) -> Batch:
    """c = 1 - √b_t · mean_m v_m ⊙ (Jᵀ v_m), unbiased for 1 - √b_t diag J when v is ±1.

    With more probes than dimensions it is cheaper to form J once; the numbers are the same.
    """
    if len(probes) > dimension(prediction.x):
        stacked = torch.stack([v.flatten(1) for v in probes], dim=1)
        products = (stacked * (stacked @ jacobian(prediction))).mean(1).view_as(prediction.x)
    else:
        products = sum((v * prediction.vjp(v) for v in probes), torch.zeros_like(prediction.x))
        products = products / len(probes)
    return from_diagonal(prediction, products)


def from_diagonal(prediction: Prediction, diagonal: Batch) -> Batch:
    """c = 1 - √b_t diag J."""
    return 1.0 - prediction.marginal[1].sqrt() * diagonal


def jacobian(prediction: Prediction) -> Float[Tensor, "batch d d"]:
    """Row i is Jᵀ applied to the i-th unit vector."""
    x = prediction.x
    unit = torch.eye(dimension(x), dtype=x.dtype, device=x.device)
    rows = [prediction.vjp(e.view(1, *x.shape[1:]).expand_as(x)).flatten(1) for e in unit]
    return torch.stack(rows, dim=1)
