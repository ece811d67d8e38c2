"""A small fully connected score network for points.

With Gaussian preconditioning the network learns what a Gaussian of the data's variance v cannot
say: ε̂ = √b / (ᾱ v + b) · x_t + c_g · F(x_t, t), with c_g = ᾱ v / (ᾱ v + b). The linear part alone
has 1 - √b J = c_g, so an error of F shifts c in proportion to c itself, even at large t, where c is
1e-4. Inputs are at unit scale, and the noise level enters as log(b_t / ᾱ_t) / 2.
"""

from itertools import pairwise
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ocm_core.diffusion.schedule import Schedule
from ocm_core.diffusion.score_network import ScoreNetwork, TrunkFeatures
from ocm_core.errors import OcmError
from ocm_core.networks._layers import table_at, zeroed
from ocm_core.shapes import PerPoint, Points


class NoiseLevels(nn.Module):
    """The schedule as tables over t, and the data's variance v."""

    alpha_bar: Tensor
    b: Tensor
    variance: Tensor

    def __init__(self, schedule: Schedule, variance: float) -> None:
        super().__init__()
        self.register_buffer("alpha_bar", torch.from_numpy(schedule.alpha_bar), persistent=False)
        self.register_buffer("b", torch.from_numpy(schedule.b), persistent=False)
        self.register_buffer("variance", torch.tensor(variance, dtype=torch.float64))

    def at(self, time: Float[Tensor, " batch"]) -> tuple[PerPoint, PerPoint]:
        """Return ᾱ_t and b_t in float64, linear between timesteps."""
        return table_at(self.alpha_bar, time).unsqueeze(1), table_at(self.b, time).unsqueeze(1)

    def marginal_variance(self, time: Float[Tensor, " batch"]) -> PerPoint:
        """Return ᾱ_t v + b_t."""
        alpha_bar, b = self.at(time)
        return alpha_bar * self.variance + b


class Mlp(nn.Module):
    """SiLU layers over Fourier features of x_t, for narrow modes, and of the noise level."""

    fine: Tensor
    coarse: Tensor

    def __init__(
        self, levels: NoiseLevels, dimension: int, width: int, depth: int, outputs: int = 0
    ) -> None:
        super().__init__()
        self.levels = levels
        # fine structure is in x_t; along the noise level everything changes slowly
        fine, coarse = 2.0 ** torch.arange(-2, 4), 2.0 ** torch.arange(-2, 2)
        self.register_buffer("fine", fine, persistent=False)
        self.register_buffer("coarse", coarse, persistent=False)
        inputs = dimension * (1 + 2 * len(fine)) + 1 + 2 * len(coarse)
        layers: list[nn.Module] = []
        for before, after in pairwise([inputs, *[width] * depth]):
            layers += [nn.Linear(before, after), nn.SiLU()]
        self.layers = nn.Sequential(*layers, zeroed(nn.Linear(width, outputs or dimension)))

    def forward(self, x: Points, time: Float[Tensor, " batch"]) -> Points:
        alpha_bar, b = self.levels.at(time)
        level = (0.25 * torch.log(b / alpha_bar)).to(x.dtype)
        scaled = x / self.levels.marginal_variance(time).sqrt().to(x.dtype)
        fine = (scaled.unsqueeze(-1) * self.fine.to(x.dtype)).flatten(1)
        angles = torch.cat([fine, level * self.coarse.to(x.dtype)], dim=1)
        features = [scaled, level, angles.sin(), angles.cos()]
        output: Tensor = self.layers(torch.cat(features, dim=1))
        return output


class MlpHead(nn.Module):
    """A covariance head of its own: there is no trunk worth sharing."""

    def __init__(self, levels: NoiseLevels, dimension: int, width: int, depth: int) -> None:
        super().__init__()
        self.net = Mlp(levels, dimension, width, depth)

    def forward(self, features: TrunkFeatures) -> Points:
        output: Tensor = self.net(features.hidden, features.embedding)
        return output


class PointNetwork(ScoreNetwork):
    """A network for points, whose features are the point and its time."""

    head_kinds: ClassVar[tuple[str, ...]] = ("mlp",)
    out_channels_per_input = 1

    def __init__(self, levels: NoiseLevels, dimension: int) -> None:
        super().__init__()
        self.levels, self.dimension = levels, dimension

    def features(self, x: Points, time: Tensor, label: Tensor | None = None) -> TrunkFeatures:
        return TrunkFeatures(x, time)

    def _build_head(self, kind: str, outputs: int = 0, **sizes: int) -> nn.Module:
        if outputs not in (0, self.dimension):
            raise OcmError(f"head kind '{kind}' has {self.dimension} outputs, not {outputs}")
        if sizes.keys() != {"width", "depth"}:
            raise OcmError(f"head.sizes of '{kind}': expected width and depth, got {dict(sizes)}")
        return MlpHead(self.levels, self.dimension, sizes["width"], sizes["depth"])


class MlpScore(PointNetwork):
    """A score network with Gaussian preconditioning."""

    correction: ClassVar[type[nn.Module]] = Mlp

    def __init__(
        self, schedule: Schedule, variance: float, width: int, depth: int, dimension: int = 2
    ) -> None:
        super().__init__(NoiseLevels(schedule, variance), dimension)
        self.net = self.correction(self.levels, dimension, width, depth)

    def readout(self, features: TrunkFeatures) -> Tensor:
        x, time = features
        correction: Tensor = self.net(x, time)
        b = self.levels.at(time)[1]
        total = self.levels.marginal_variance(time)
        c_gaussian = (total - b) / total
        return (b.sqrt() / total).to(x.dtype) * x + c_gaussian.to(x.dtype) * correction


create = MlpScore
