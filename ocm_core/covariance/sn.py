"""Squared-noise prediction: c = g - ε̂² with g ≈ E[ε² | x_t] regressed on the data's noise."""

from torch import Tensor

from ocm_core.covariance.interface import Look, Profile
from ocm_core.covariance.learned import RegressionMethod, TrainingBatch
from ocm_core.diffusion.denoiser import Prediction


class Method(RegressionMethod):
    profile = Profile(
        "a head fitted to the squared noise, less the squared prediction",
        "c = g(xₜ) - ε̂², g ≈ E[ε² | xₜ]",
        line=Look("blue", "square"),
    )

    def published(self, raw: Tensor, prediction: Prediction) -> Tensor:
        return raw - prediction.eps.detach() ** 2

    def unit(self, baseline: Tensor) -> Tensor:
        # ε² - ε̂² ≈ 2 ε̂ (ε - ε̂), whose spread goes with the root of c
        return baseline.sqrt()

    def target(self, batch: TrainingBatch) -> Tensor:
        return batch.eps**2 - batch.predicted_eps**2
