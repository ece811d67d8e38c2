"""No covariance of ours: the noise of a solver of diffusers, if it draws any, is its own."""

from ocm_core.covariance.interface import FixedMethod, Look, Profile, ReverseStep


class Method(FixedMethod):
    profile = Profile(
        "none: a solver of diffusers, whose noise is its own if it draws any",
        line=Look("ink", "star-open", width=1.3),
        group="Fixed",
    )
    kernels = frozenset()
    fixed_variance = False  # there is none of ours

    def sigma2(self, step: ReverseStep) -> float:
        return 0.0
