"""c = 1 - √b_t diag J, exactly: D extra backward passes."""

from typing import ClassVar

from torch import Tensor

from ocm_core.covariance.interface import PosteriorMethod, Profile
from ocm_core.covariance.probes import jacobian
from ocm_core.diffusion.denoiser import Prediction


class Method(PosteriorMethod):
    profile: ClassVar[Profile] = Profile(
        "the diagonal of the score's Jacobian, at every step",
        "c = 1 - √bₜ diag J",
        group="Exact Jacobian",
        hue="ink",
        marker="circle-open",
        width=1.3,
    )
    reads_jacobian: ClassVar[bool] = True

    def jacobian_products(self, dimension: int) -> int:
        return dimension

    def c(self, prediction: Prediction) -> Tensor:
        diagonal = jacobian(prediction).diagonal(dim1=1, dim2=2).reshape_as(prediction.x)
        return 1.0 - prediction.marginal[1].sqrt() * diagonal
