"""Noise-prediction residual: c = g with g ≈ E[(ε - ε̂)² | x_t], which also absorbs ε̂'s error."""

from torch import Tensor

from ocm_core.covariance.interface import Look, Profile
from ocm_core.covariance.learned import RegressionMethod, TrainingBatch
from ocm_core.diffusion.denoiser import Prediction


class Method(RegressionMethod):
    profile = Profile(
        "a head fitted to the squared residual of the predicted noise",
        "c = g(xₜ), g ≈ E[(ε - ε̂)² | xₜ]",
        line=Look("green", "diamond"),
    )

    def published(self, raw: Tensor, prediction: Prediction) -> Tensor:
        return raw

    def target(self, batch: TrainingBatch) -> Tensor:
        return (batch.eps - batch.predicted_eps) ** 2
