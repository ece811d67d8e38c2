"""c = 1 - Γ_t with Γ_t = E‖ε̂‖² / d: one number per timestep, by Monte Carlo over the data."""

from torch import Tensor

from ocm_core.covariance.interface import Need, PosteriorMethod
from ocm_core.diffusion.denoiser import Prediction


class Method(PosteriorMethod):
    @property
    def needs(self) -> Need:
        return "moments"

    def c(self, prediction: Prediction) -> Tensor:
        return prediction.at(prediction.denoiser.moments, "the table of moments of `analytic`")
