"""DDPM: the posterior q(x_s | x_t, x_0) of the forward process."""

from math import sqrt
from typing import ClassVar

from ocm_core.diffusion.kernels import Kernel
from ocm_core.diffusion.transition import Transition
from ocm_core.shapes import Batch


class Ddpm(Kernel):
    """Mean a x̂_0 + √ᾱ_{s:t} (b_s / b_t) x_t, variance β̃_{s:t} + a² C, a = √ᾱ_s b_{s:t} / b_t."""

    name: ClassVar[str] = "ddpm"

    def mean(self, step: Transition, x: Batch, x0: Batch, eps: Batch) -> Batch:
        return self._a(step) * x0 + sqrt(step.alpha_bar_st) * (step.b_s / step.b_t) * x

    def floor(self, step: Transition) -> float:
        return step.beta_tilde

    def gain(self, step: Transition) -> float:
        return self._a(step) ** 2

    def _a(self, step: Transition) -> float:
        return sqrt(step.alpha_bar_s) * step.b_st / step.b_t
