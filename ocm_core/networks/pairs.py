"""A score network for four particles in the plane, with the symmetries of their energy.

The correction of the particles is Σ_j w_ij (x_i - x_j). The weight w_ij is a network of distances
alone, so that rotations and reflections turn the score with the particles. It does not tell i from
j, nor the other two, k and l, from each other: of d_ik, d_il, d_jk and d_jl it sees what exchanging
these leaves alone, which is their sum s, and u², v², w² and u v w of the contrasts.
"""

from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ocm_core.datasets.double_wells import DIFFERENCES, PAIRS
from ocm_core.networks.mlp import Mlp, MlpScore, NoiseLevels
from ocm_core.shapes import Points

OTHERS = [  # the places of i k, i l, j k and j l in PAIRS
    [PAIRS.index((min(a, c), max(a, c))) for a in pair for c in range(4) if c not in pair]
    for pair in PAIRS
]
CONTRASTS = [[1, 1, 1, 1], [1, 1, -1, -1], [1, -1, 1, -1], [1, -1, -1, 1]]  # symmetric


class PairWeights(nn.Module):
    """Σ_j w_ij (x_i - x_j), in the coordinates of `datasets/double_wells.py`."""

    differences: Tensor
    contrasts: Tensor

    def __init__(self, levels: NoiseLevels, dimension: int, width: int, depth: int) -> None:
        super().__init__()
        self.levels, self.net = levels, Mlp(levels, 7, width, depth, outputs=1)
        self.register_buffer("differences", torch.from_numpy(DIFFERENCES), persistent=False)
        self.register_buffer("contrasts", torch.tensor(CONTRASTS) / 2, persistent=False)

    def forward(self, x: Points, time: Float[Tensor, " batch"]) -> Points:
        unit = self.levels.marginal_variance(time).sqrt().to(x.dtype).unsqueeze(-1)
        differences = self.differences.to(x.dtype)
        r = differences @ (x.reshape(-1, 3, 2) / unit)
        d = (r.square().sum(-1) + 1e-12).sqrt()
        s, u, v, w = (d[:, OTHERS] @ self.contrasts.to(x.dtype)).unbind(-1)
        # the pair of the other two particles stands at the same place from the end
        seen = torch.stack([d, d.flip(1), s, u * u, v * v, w * w, u * v * w], dim=-1) * unit
        weights = self.net(seen.flatten(0, 1), time.repeat_interleave(len(PAIRS))).view(-1, 6, 1)
        moved: Tensor = differences.mT @ (weights * r)
        return moved.flatten(1)


class PairScore(MlpScore):
    """A score network on the distances of four particles."""

    correction: ClassVar[type[nn.Module]] = PairWeights


create = PairScore
