"""What draws of a distribution are worth where the truth is known: CRPS and coverage, by entry.

CRPS = E|x - x_0| - ½ E|x - x'| (Gneiting and Raftery, 2007), x and x' independent draws. The truth
and n draws of its distribution are alike, so that each of the n + 1 places among the ordered draws
has the same probability: that of an interval between two of them is exact for any distribution.
"""

import torch
from jaxtyping import Float
from torch import Tensor

Draws = Float[Tensor, "batch draw *dims"]
TWENTY = 20  # places, of which 18 are 90 %: of 19 draws those between the lowest and the highest


def crps(draws: Draws, truth: Tensor) -> Tensor:
    """Return the score of two draws or more, without bias: x and x' are never the same draw."""
    count = draws.shape[1]
    # Σ_ij |x_i - x_j| = 2 Σ_i (2i - n - 1) x_(i), of the ordered ones
    weights = 2.0 * torch.arange(1, count + 1, dtype=draws.dtype, device=draws.device) - count - 1
    spread = torch.einsum("ij...,j->i...", draws.sort(1).values, weights) / (count * (count - 1))
    return (draws - truth.unsqueeze(1)).abs().mean(1) - spread


def inside(draws: Draws, truth: Tensor) -> Tensor:
    """Return 1 where the truth is between the draws that enclose 90 %; n + 1 is 20, 40, …"""
    ordered, cut = draws.sort(1).values, (draws.shape[1] + 1) // TWENTY
    return ((ordered[:, cut - 1] <= truth) & (truth <= ordered[:, -cut])).to(draws.dtype)
