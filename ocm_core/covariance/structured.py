"""`METHOD+BASIS`: the magnitude of a method, with the correlation of the residual in a basis.

A method says how large the error of x̂_0 is at each pixel, the spectrum ρ(t) how it is correlated:
Σ = S U diag(floor + gain · ρ) Uᵀ S, where S² makes diag Σ the method's own. A method that is one
number per t has nothing to say by pixel: its place is taken by ρ, one number per t and coefficient.
"""

from dataclasses import replace
from typing import Any, cast

from torch import Tensor

from ocm_core.covariance.interface import CovarianceMethod, Need, ReverseStep, StepCovariance
from ocm_core.diffusion.basis import Spectrum
from ocm_core.diffusion.denoiser import AnyPrediction
from ocm_core.diffusion.gaussian import Correlated, Diagonal
from ocm_core.rng.noise import Noise
from ocm_core.shapes import Batch


class Structured(CovarianceMethod):
    """A covariance with a method's magnitude, and the correlation of a basis."""

    method: CovarianceMethod
    basis: str

    @property
    def kernels(self) -> frozenset[str] | None:  # type: ignore[override]
        return self.method.kernels

    @property
    def has_density(self) -> bool:  # type: ignore[override]
        return self.method.has_density

    @property
    def needs(self) -> Need:  # type: ignore[override]
        return "nothing" if self.method.state_free else self.method.needs

    @property
    def spectrum(self) -> str:  # type: ignore[override]
        return self.basis

    @property
    def options(self) -> dict[str, Any]:
        return self.method.options

    def jacobian_products(self, dimension: int) -> int:
        return self.method.jacobian_products(dimension)

    def final_sigma(self, limit: float | None) -> float | None:
        return self.method.final_sigma(limit)

    def step_covariance(self, prediction: AnyPrediction, noise: Noise) -> StepCovariance:
        spectrum = prediction.denoiser.spectrum(self.basis)

        def stationary(step: ReverseStep) -> Correlated:
            return Correlated(spectrum.basis, step.added(spectrum.at(step.transition.t)))

        if self.method.state_free:
            return stationary
        own = self.method.step_covariance(prediction, noise)
        if spectrum.is_flat:
            return own

        def covariance(step: ReverseStep) -> Correlated:
            magnitude = cast(Diagonal, own(self._in_pixels(step, spectrum, prediction.x)))
            return stationary(step).with_diagonal(magnitude.variance)

        return covariance

    @staticmethod
    def _in_pixels(step: ReverseStep, spectrum: Spectrum, like: Batch) -> ReverseStep:
        """Return the step with its factor on C by pixel, as its coefficients have it together."""
        if not isinstance(factor := step.posterior_factor, Tensor):
            return step
        whole, basis = spectrum.at(step.transition.t), spectrum.basis
        share = basis.spread(factor * whole) / basis.spread(whole)
        return replace(step, posterior_factor=share.to(like))
