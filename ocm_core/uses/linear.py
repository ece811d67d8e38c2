"""What was seen of images, y = A x_0 + σ n, by a linear operator A; and the systems to be solved.

(σ² + A C Aᵀ) u = r is solved by conjugate gradients, with products with A, C and Aᵀ. What is wanted
is C Aᵀ u: it is summed on the way, so that an iteration has one product with C.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import torch
from torch import Tensor

from ocm_core.diffusion.gaussian import sum_dims
from ocm_core.errors import OcmError
from ocm_core.shapes import Batch, PerSample

MOST = 5000  # iterations of conjugate gradients without a network
_ADJOINT = 1e-3  # how far ⟨A x, v⟩ may be from ⟨x, Aᵀ v⟩, as a share of the norms


class Linear(Protocol):
    """A linear operator, as `deepinv.physics.LinearPhysics` is one; images are in [-1, 1]."""

    def A(self, x: Batch) -> Tensor:  # noqa: N802
        """Return what is seen of images."""

    def A_adjoint(self, y: Tensor) -> Batch:  # noqa: N802
        """Return Aᵀ y."""


@dataclass(frozen=True)
class Measured:
    """What was seen of images: y = A x_0 + σ n."""

    y: Tensor
    physics: Linear
    sigma: float

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape of an image."""
        return tuple(self.physics.A_adjoint(self.y[:1]).shape[1:])

    @cached_property
    def reached(self) -> Tensor:
        """Return whether an entry of y depends on the image at all."""
        return self.physics.A(self.y.new_ones(1, *self.shape)) != 0

    def chi2(self, draws: Tensor) -> PerSample:
        """Return ‖y - A x‖² / σ² per measurement: for each image the mean over its draws."""
        y, count = self.y.repeat_interleave(draws.shape[1], 0), int(self.reached.sum())
        residual = y - self.physics.A(draws.flatten(0, 1).to(y))
        squares = (residual * self.reached).square().flatten(1).sum(1) / max(self.sigma, 1e-12) ** 2
        return squares.view(len(draws), -1).mean(1) / count

    def residual(self, x0: Batch) -> Tensor:
        """Return y - A x_0."""
        return self.y - self.physics.A(x0)

    def gain(
        self, c: Callable[[Batch], Batch], residual: Tensor, tolerance: float, most: int = MOST
    ) -> Batch:
        """Return C Aᵀ (σ² + A C Aᵀ)⁻¹ r by conjugate gradients, each with one product with C.

        `tolerance` 0 takes as many as there may be; else a system that stays unsolved is refused.
        A direction in which C is not positive is not taken.
        """
        p, left, square = residual, residual, sum_dims(residual**2)
        goal, found = tolerance**2 * square, torch.zeros(())
        for _ in range(most):
            image = c(self.physics.A_adjoint(p))
            seen = self.sigma**2 * p + self.physics.A(image)
            curvature = sum_dims(p * seen)
            usable = (square > goal) & (curvature > 0)
            found = found + times(torch.where(usable, square / curvature, 0.0), image)
            left = left - times(torch.where(usable, square / curvature, 0.0), seen)
            last, square = square, torch.where(usable, sum_dims(left**2), square)
            if not bool(((square > goal) & usable).any()):
                break
            p = left + times(torch.where(usable, square / last, 0.0), p)
        if tolerance and not bool((square <= goal).all()):
            share = float((square / goal).max().sqrt()) * tolerance
            raise OcmError(
                f"sigma = {self.sigma:g}: (σ² + A C Aᵀ) u = y - A x̂_0 is singular, or nearly so:"
                f" a share of {share:.2g} is left of the residual after {most} iterations at most;"
                " give the noise that y has, or a y within reach of A"
            )
        return found


def times(factor: Tensor, x: Tensor) -> Tensor:
    """Multiply each item by its own number."""
    return factor.view(-1, *(1,) * (x.ndim - 1)) * x


def check_operator(measured: Measured) -> None:
    """Refuse y or A that cannot be: of other sizes, not linear, or with another adjoint."""
    y, physics, sigma = measured.y, measured.physics, measured.sigma
    if not isinstance(y, Tensor) or not y.is_floating_point() or not y.numel():
        raise OcmError("y: expected a tensor of measurements, the first axis being the image")
    if not bool(y.isfinite().all()):
        raise OcmError("y: has entries that are no numbers (NaN or infinite)")
    if not 0 <= sigma < float("inf"):
        raise OcmError(f"sigma = {sigma:g}: expected the deviation of the noise in y, 0 or more")
    name = type(physics).__name__
    if not (hasattr(physics, "A") and hasattr(physics, "A_adjoint")):
        raise OcmError(f"physics: {name} has no A and A_adjoint; expected a LinearPhysics")
    try:
        v = _wave(y[:1])
        back = physics.A_adjoint(v)
        x = _wave(back).flip(-1)
        seen, twice = physics.A(x), physics.A(2 * x)
    except (RuntimeError, ValueError, AssertionError, TypeError) as error:
        said = f"{name} does not take y of shape {tuple(y.shape)} ({error})"
        raise OcmError(f"physics: {said}; expected an operator for it") from None
    if not isinstance(seen, Tensor) or seen.shape != v.shape:
        found = tuple(seen.shape) if isinstance(seen, Tensor) else type(seen).__name__
        raise OcmError(f"physics: {name} gives {found} for an image, y has {tuple(v.shape)}")
    one, other = float((seen * v).sum()), float((x * back).sum())
    if abs(one - other) > _ADJOINT * float(seen.norm() * v.norm() + x.norm() * back.norm()):
        raise OcmError(f"physics: {name}: A_adjoint is not the adjoint of A ({one:g}, {other:g})")
    if not torch.allclose(twice, 2 * seen, rtol=_ADJOINT, atol=_ADJOINT * float(seen.abs().max())):
        raise OcmError(f"physics: {name} is not linear: A(2 x) is not 2 A(x)")


def _wave(like: Tensor) -> Tensor:
    """Return numbers without a pattern, in the shape of a batch."""
    place = torch.arange(like.numel(), dtype=torch.float64, device=like.device)
    return (place * place + place).cos().to(like.dtype).view_as(like)
