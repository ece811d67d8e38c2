"""Orthonormal bases of images, and the variance of x_0's residual along them (docs/mathematics.md).

A basis is a matrix per axis of the data, whose rows are its vectors: the discrete cosine transform
along channels, rows and columns, or one matrix for the flattened data.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import pi, prod

import torch
from jaxtyping import Float64
from torch import Tensor

from ocm_core.errors import OcmError
from ocm_core.shapes import Batch, Times

BASES = ("dct", "klt")
_LARGEST = 2048  # dimensions of data whose principal axes are computed


@dataclass(frozen=True, eq=False)
class Basis:
    """Orthonormal vectors of items of a shape, as the rows of one matrix per axis."""

    matrices: tuple[Float64[Tensor, "n n"], ...]
    shape: tuple[int, ...]

    def coefficients(self, x: Batch) -> Tensor:
        """Return Uᵀ x, in the shape of the axes."""
        return self._along_axes(x, [m.to(x).mT for m in self.matrices])

    def combine(self, coefficients: Tensor) -> Batch:
        """Return U c."""
        matrices = [m.to(coefficients) for m in self.matrices]
        return self._along_axes(coefficients, matrices).reshape(-1, *self.shape)

    def spread(self, values: Tensor) -> Batch:
        """Return the diagonal of U diag(v) Uᵀ."""
        squares = [m.to(values).square() for m in self.matrices]
        return self._along_axes(values, squares).reshape(-1, *self.shape)

    @property
    def largest_sum(self) -> float:
        """Return the largest sum of a vector's absolute values: how far |x| ≤ 1 can reach."""
        return prod(float(matrix.abs().sum(1).max()) for matrix in self.matrices)

    def _along_axes(self, x: Tensor, matrices: list[Tensor]) -> Tensor:
        x = x.reshape(-1, *map(len, self.matrices))
        for axis, matrix in enumerate(matrices, start=1):
            x = torch.tensordot(x, matrix, ([axis], [0])).movedim(-1, axis)
        return x


def cosine(size: int) -> Float64[Tensor, "n n"]:
    """Return the orthonormal discrete cosine transform, lowest frequency first."""
    place = torch.arange(size, dtype=torch.float64)
    matrix: Tensor = torch.cos(pi / size * torch.outer(place, place + 0.5)) * (2 / size) ** 0.5
    matrix[0] /= 2**0.5
    return matrix


def build(name: str, x0: Batch) -> Basis:
    """Return a basis for data like x_0: `dct`, or `klt`, the principal axes of these items."""
    shape = tuple(x0.shape[1:])
    if name == "dct":
        return Basis(tuple(map(cosine, shape)), shape)
    if name != "klt":
        raise OcmError(f"basis '{name}': expected one of {', '.join(BASES)}")
    flat = x0.flatten(1).double()
    if flat.shape[1] > _LARGEST:
        raise OcmError(f"basis 'klt': {flat.shape[1]} dimensions, at most {_LARGEST}; use 'dct'")
    return Basis((torch.linalg.eigh(flat.T.cov())[1].T.flip(0).contiguous(),), shape)


@dataclass(frozen=True, eq=False)
class Spectrum:
    """log ρ on a grid of timesteps: the variance of x_0 - x̂_0 along each vector of a basis."""

    basis: Basis
    times: tuple[int, ...]
    log_variance: Float64[Tensor, "time ..."]

    def at(self, t: int) -> Float64[Tensor, "1 ..."]:
        """Return ρ(t), straight in log ρ between timesteps of the grid."""
        return self.at_each(torch.full((1,), t, device=self.log_variance.device))

    def at_each(self, t: Times) -> Float64[Tensor, "batch ..."]:
        """Return ρ at the timestep of each item."""
        grid = self._grid
        above = torch.bucketize(t, grid).clamp(1, len(grid) - 1)
        low, high = grid[above - 1], grid[above]
        share = ((t - low).to(self.log_variance) / (high - low)).clamp(0, 1)
        before, after = self.log_variance[above - 1], self.log_variance[above]
        return torch.lerp(before, after, share.view(-1, *(1,) * (before.ndim - 1))).exp()

    @cached_property
    def _grid(self) -> Times:
        return torch.tensor(self.times, device=self.log_variance.device)

    @cached_property
    def is_flat(self) -> bool:
        """Whether all coefficients have the same variance at every timestep: no correlation.

        The first look waits for the device.
        """
        return bool((self.log_variance.flatten(1) == self.log_variance.flatten(1)[:, :1]).all())

    def to(self, device: str) -> Spectrum:
        """Return the spectrum on a device."""
        return Spectrum.of_tensors(self.tensors(), device)

    def tensors(self) -> dict[str, Tensor]:
        """Return what a file holds of it."""
        matrices = {f"matrix{axis}": m for axis, m in enumerate(self.basis.matrices)}
        facts = {"times": torch.tensor(self.times), "shape": torch.tensor(self.basis.shape)}
        return {**matrices, **facts, "log_variance": self.log_variance}

    @classmethod
    def of_tensors(cls, held: dict[str, Tensor], device: str = "cpu") -> Spectrum:
        """Return the spectrum that `tensors` gave, on a device."""
        dtype = torch.float32 if torch.device(device).type == "mps" else torch.float64
        matrices = (held[f"matrix{axis}"].to(device, dtype) for axis in range(len(held) - 3))
        times, shape = (tuple(map(int, held[name].tolist())) for name in ("times", "shape"))
        return cls(Basis(tuple(matrices), shape), times, held["log_variance"].to(device, dtype))
