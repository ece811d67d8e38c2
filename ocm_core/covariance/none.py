"""No covariance of ours: the noise of a solver of diffusers, if it draws any, is its own."""

from ocm_core.covariance.interface import FixedMethod, Profile, ReverseStep


class Method(FixedMethod):
    profile = Profile(
        "none: a solver of diffusers, whose noise is its own if it draws any",
        group="Fixed",
        hue="ink",
        marker="star-open",
        width=1.3,
    )
    kernels = frozenset()
    fixed_variance = False  # there is none of ours

    def sigma2(self, step: ReverseStep) -> float:
        return 0.0
