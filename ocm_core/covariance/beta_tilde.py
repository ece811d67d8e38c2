"""Σ = β̃_{s:t}: the smallest sensible choice, exact where the data are one point."""

from ocm_core.covariance.interface import FixedMethod, Look, Profile, ReverseStep


class Method(FixedMethod):
    profile = Profile(
        "the variance of the forward step's reversal, x₀ being known",
        "Σ = β̃",
        line=Look("grey", "diamond-open", "dash"),
        group="Fixed",
    )
    kernels = frozenset({"ddpm"})

    def sigma2(self, step: ReverseStep) -> float:
        return step.transition.beta_tilde
