"""The exact score of a Gaussian mixture, as a network without parameters."""

from torch import Tensor

from ocm_core.datasets.mixture import MixtureData
from ocm_core.diffusion.mixture import Mixture, mixture
from ocm_core.diffusion.schedule import Schedule, predict_eps
from ocm_core.diffusion.score_network import TrunkFeatures
from ocm_core.networks.mlp import NoiseLevels, PointNetwork


class MixtureScore(PointNetwork):
    """ε̂ = E[ε | x_t] = (x_t - √ᾱ_t E[x_0 | x_t]) / √b_t, in float64 inside."""

    def __init__(self, mixture: Mixture, schedule: Schedule) -> None:
        super().__init__(NoiseLevels(schedule, mixture.variance), mixture.means.shape[1])
        self.mixture = mixture

    def readout(self, features: TrunkFeatures) -> Tensor:
        alpha_bar, b = self.levels.at(features.embedding)
        x = features.hidden.double()
        mean, _ = self.mixture.posterior(x, alpha_bar, b)
        return predict_eps(x, mean, alpha_bar, b).to(features.hidden.dtype)


def exact_score(data: MixtureData, schedule: Schedule) -> MixtureScore:
    """Return the exact score of the data at every noise level."""
    return MixtureScore(mixture(data), schedule)
