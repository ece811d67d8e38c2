"""Σ = β̃_{s:t}: the smallest sensible choice, exact where the data are one point."""

from ocm_core.covariance.interface import FixedMethod, Profile, ReverseStep


class Method(FixedMethod):
    profile = Profile(
        "the variance of the forward step's reversal, x₀ being known",
        "Σ = β̃",
        group="Fixed",
        hue="grey",
        marker="diamond-open",
        dash="dash",
    )
    kernels = frozenset({"ddpm"})

    def sigma2(self, step: ReverseStep) -> float:
        return step.transition.beta_tilde
