"""c = 1 - Γ_t with Γ_t = E‖ε̂‖² / d: one number per timestep, by Monte Carlo over the data."""

from torch import Tensor

from ocm_core.covariance.interface import Look, PosteriorMethod, Profile
from ocm_core.diffusion.denoiser import Prediction


class Method(PosteriorMethod):
    profile = Profile(
        "one number per t, from the mean square of the predicted noise",
        "c = 1 - E‖ε̂‖²/d",
        line=Look("orange", "triangle-down", "dashdot"),
    )

    state_free = True
    needs = "moments"

    def c(self, prediction: Prediction) -> Tensor:
        return prediction.at(prediction.denoiser.moments, "the table of moments of `analytic`")
