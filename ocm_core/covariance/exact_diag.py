"""c = 1 - √b_t diag J, exactly: D extra backward passes."""

from torch import Tensor

from ocm_core.covariance.interface import Look, PosteriorMethod, Profile, c_from_jacobian
from ocm_core.diffusion.denoiser import Prediction


class Method(PosteriorMethod):
    profile = Profile(
        "the diagonal of the score's Jacobian, at every step",
        "c = 1 - √bₜ diag J",
        line=Look("ink", "circle-open", width=1.3),
        group="Exact Jacobian",
    )

    def jacobian_products(self, dimension: int) -> int:
        return dimension

    def c(self, prediction: Prediction) -> Tensor:
        diagonal = prediction.jacobian().diagonal(dim1=1, dim2=2).reshape_as(prediction.x)
        return c_from_jacobian(prediction, diagonal)
