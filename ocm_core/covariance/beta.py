"""Σ = b_{s:t}: the largest sensible choice, exact where the data are white noise."""

from ocm_core.covariance.interface import FixedMethod, Look, Profile, ReverseStep


class Method(FixedMethod):
    profile = Profile(
        "the variance of the forward step",
        "Σ = 1 - ᾱₜ/ᾱₛ",
        line=Look("grey", "x", "dot"),
        group="Fixed",
    )
    kernels = frozenset({"ddpm"})

    def sigma2(self, step: ReverseStep) -> float:
        return step.transition.b_st
