"""A small fully connected score network for points in the plane.

With Gaussian preconditioning the network learns what a Gaussian of the data's variance v cannot
say: ε̂ = √b / (ᾱ v + b) · x_t + c_g · F(x_t, t), with c_g = ᾱ v / (ᾱ v + b). The linear part alone
has 1 - √b J = c_g, so that an error of F shifts c in proportion to c itself, even at large t, where
c is 1e-4 and the Jacobian of a plain network says nothing about it.
"""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from ocm_core.diffusion.schedule import Schedule
from ocm_core.diffusion.score_network import TrunkFeatures
from ocm_core.networks._plane import Mlp, NoiseLevels, PlaneNetwork
from ocm_core.schema.experiment import MlpNetworkParams


class MlpScore(PlaneNetwork):
    def __init__(
        self,
        schedule: Schedule,
        variance: float,
        width: int,
        depth: int,
        precondition: Literal["none", "gaussian"],
    ) -> None:
        super().__init__(NoiseLevels(schedule, variance))
        self.net = Mlp(self.levels, self.dimension, width, depth)
        self.precondition = precondition

    def readout(self, features: TrunkFeatures) -> Tensor:
        x, time = features
        correction: Tensor = self.net(x, time)
        if self.precondition == "none":
            return correction
        b = self.levels.at(time)[1]
        total = self.levels.marginal_variance(time)
        c_gaussian = (total - b) / total
        return (b.sqrt() / total).to(x.dtype) * x + c_gaussian.to(x.dtype) * correction


def create(params: MlpNetworkParams, schedule: Schedule, variance: float) -> MlpScore:
    return MlpScore(schedule, variance, params.width, params.depth, params.precondition)
