"""The diagonal of c in an orthonormal basis, learned: Σ = U diag(floor + gain · C(x_t, t)) Uᵀ.

c_k = 1 - √b (UᵀJU)_kk has the target 1 - √b v ⊙ UᵀJᵀ(Uv), v = ±1, from the score alone, or the
squared residual (Uᵀ(ε - ε̂))²_k. The head is relative to the stationary c̄_k = ρ_k ᾱ / b of the
spectrum: it says what x_t has to do with it, and an output of zero is `analytic` in this basis.
"""

from dataclasses import replace
from typing import Annotated, Literal

from pydantic import Field
from torch import Tensor

from ocm_core.covariance.interface import (
    Look,
    Profile,
    ReverseStep,
    StepCovariance,
    c_from_jacobian,
)
from ocm_core.covariance.learned import RegressionMethod, TrainingBatch
from ocm_core.diffusion.basis import Basis
from ocm_core.diffusion.denoiser import AnyPrediction, Prediction
from ocm_core.diffusion.gaussian import Correlated
from ocm_core.rng.noise import Noise
from ocm_core.shapes import Batch


class Method(RegressionMethod):
    profile = Profile(
        "a head fitted to the score's Jacobian along the vectors of a basis",
        "c_k(xₜ) ≈ 1 - √bₜ E[v ⊙ UᵀJᵀUv]_k",
        line=Look("green", "star", "longdash", 2.4),
    )
    is_diagonal = False
    pooled = True
    basis: Literal["dct", "klt"] = "dct"
    source: Literal["jacobian", "residual"] = "jacobian"
    probes: Annotated[int, Field(ge=1)] = 1

    @property
    def spectrum(self) -> str:  # type: ignore[override]
        return self.basis

    @property
    def training_probes(self) -> int:  # type: ignore[override]
        return self.probes if self.source == "jacobian" else 0

    def published(self, raw: Tensor, prediction: Prediction) -> Tensor:
        return self.baseline(prediction) * (1.0 + raw)

    def baseline(self, prediction: Prediction) -> Tensor:
        """c̄_k = ρ_k ᾱ / b, in the shape of x_t."""
        alpha_bar, b = prediction.marginal
        rho = prediction.denoiser.spectrum(self.basis).at_each(prediction.t)
        return rho.view_as(prediction.x).to(prediction.x) * alpha_bar / b

    def floor(self, prediction: Prediction) -> Tensor | None:
        floor, baseline = super().floor(prediction), self.baseline(prediction)
        if floor is None:
            return None
        return floor * baseline / baseline.flatten(1).mean(1).view_as(floor)

    def unit(self, baseline: Tensor) -> Tensor:
        if self.source == "residual":
            return baseline
        # the Jacobian of a plain network is noisier than c̄ at large t
        mean = baseline.flatten(1).mean(1).view(-1, *(1,) * (baseline.ndim - 1))
        return baseline / mean.sqrt()

    def target(self, batch: TrainingBatch) -> Tensor:
        basis, x = self._basis(batch.prediction), batch.prediction.x
        if self.source == "residual":
            return (basis.coefficients(batch.eps - batch.predicted_eps) ** 2).view_as(x)
        return c_from_jacobian(batch.prediction, batch.diagonal(self.probes, basis))

    def step_covariance(self, prediction: AnyPrediction, noise: Noise) -> StepCovariance:
        basis, c = self._basis(prediction), prediction.combine(self.c)
        coefficients = c.reshape(-1, *map(len, basis.matrices))

        def covariance(step: ReverseStep) -> Correlated:
            # an upper limit on C is one for entries; coefficients may well be above it
            unlimited = replace(step, clip=replace(step.clip, c_max=None))
            return Correlated(basis, unlimited.variance(coefficients))

        return covariance

    def by_entry(self, prediction: Prediction) -> Batch:
        return self._basis(prediction).spread(self.c(prediction))

    def _basis(self, prediction: AnyPrediction) -> Basis:
        return prediction.denoiser.spectrum(self.basis).basis
