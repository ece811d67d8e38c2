"""aDDIM: no noise; the norm of ε̂ is raised by what a mean x̂_0 lacks of it (Heek et al., 2024).

A draw of x_0 would give x_s the variance γ² C that DDIM with x̂_0 leaves out. The step keeps its
direction: √ᾱ_s x̂_0 + √(b_s + γ² tr C / ‖ε̂‖²) ε̂, with tr C = η d (b_t / ᾱ_t)(1 - Γ_t) from the table
of `analytic`, and η = 0.75 as published.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import sqrt
from typing import Annotated

from pydantic import Field
from torch import Tensor

from ocm_core.covariance import analytic
from ocm_core.covariance.interface import Look, Profile, ReverseStep, StepCovariance
from ocm_core.diffusion.denoiser import AnyPrediction
from ocm_core.diffusion.gaussian import Covariance
from ocm_core.rng.noise import Noise
from ocm_core.shapes import Batch


class Method(analytic.Method):
    profile = Profile(
        "no noise, but a longer ε̂, by one number per t",
        "√(bₛ + η γ² d c̄ₜ bₜ / (ᾱₜ ‖ε̂‖²)) ε̂, c̄ₜ = 1 - E‖ε̂‖²/d",
        line=Look("orange", "star", "dash", 1.3),
    )
    kernels = frozenset({"ddim"})
    is_diagonal = has_density = state_free = False
    share: Annotated[float, Field(ge=0, le=1)] = 0.75  # η, of the variance of x_0

    def step_covariance(self, prediction: AnyPrediction, noise: Noise) -> StepCovariance:
        c = prediction.combine(self.c)

        def covariance(step: ReverseStep) -> Raised:
            floor = step.kernel.floor(step.transition)
            lacking = self.share * (step.variance(c) - floor)
            return Raised(prediction.eps, step.transition.b_s - floor, lacking, floor)

        return covariance


@dataclass(frozen=True)
class Raised(Covariance):
    """What is added to a mean with √kept ε̂, so that ε̂ stands for the lacking variance, too."""

    eps: Batch
    kept: float
    lacking: Tensor
    floor: float  # the variance of noise, if DDIM has any

    def scale(self, noise: Batch) -> Batch:
        square = (self.eps**2).flatten(1).mean(1).view(-1, *(1,) * (noise.ndim - 1))
        raised = (self.kept + self.lacking / square).sqrt() - sqrt(self.kept)
        return raised * self.eps + sqrt(self.floor) * noise

    def limited(self, sigma: float) -> Raised:
        return replace(self, lacking=self.lacking.clamp(max=sigma**2))
