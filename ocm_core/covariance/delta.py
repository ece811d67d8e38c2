"""C = 0: x_0 is taken to be known. With η = 0 this is the usual, noiseless DDIM.

The kernels of reinforcement learning are published with it.
"""

from ocm_core.covariance.interface import FixedMethod, Look, Profile, ReverseStep


class Method(FixedMethod):
    profile = Profile(
        "none: x₀ is taken to be known",
        "c = 0",
        line=Look("grey", "triangle-up-open", "dashdot"),
        group="Fixed",
    )
    kernels = frozenset({"ddim", "cps", "precise", "flow_grpo"})

    def sigma2(self, step: ReverseStep) -> float:
        return step.kernel.floor(step.transition)
