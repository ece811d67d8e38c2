"""Four particles in the plane with a double well between each two (DW-4), by Metropolis chains.

    E = Σ_{i<j} b (d_ij - d_0)² + c (d_ij - d_0)⁴,  d_0 = 4, b = -4, c = 0.9

(Köhler et al., 2020; with τ = 1, and half of their sum over i ≠ j.) E does not see translations:
what has a density are positions relative to the centre of mass. Points are their six coordinates in
an orthonormal basis, particles = Q z, in units of `scale`; noise is isotropic in them, too.
"""

from __future__ import annotations

from functools import cache
from itertools import combinations
from math import log, pi
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from jaxtyping import Float64
from numpy import ndarray

from ocm_core.datasets.base import DrawnData
from ocm_core.schema.block import Positive, Seed, SetSize

if TYPE_CHECKING:
    from torch import Tensor

    from ocm_core.shapes import PerSample, Points

OFFSET, SQUARE, FOURTH = 4.0, -4.0, 0.9
PAIRS = tuple(combinations(range(4), 2))
Q = np.array([[1, 1, 1], [-1, 1, 1], [0, -2, 1], [0, 0, -3]]) / np.sqrt([2, 6, 12])
DIFFERENCES = np.array([Q[i] - Q[j] for i, j in PAIRS])  # x_i - x_j of z
SWEEPS = 200  # the slowest mode, how many pairs are in the inner well, decays by e in 30
MOVES = 0.5, 4.0  # of a particle, in turn: within a well, and to another
STEP, REACH = 0.2, 9.0  # of the quadrature: log Z agrees to 2e-5 with a step of 0.25


class DoubleWellsData(DrawnData):
    """The six coordinates of four particles, in units of `scale`."""

    shape: ClassVar[tuple[int, ...]] = (6,)
    kind: Literal["double_wells"]
    scale: Positive = 2.0
    train_size: SetSize = 20_000
    test_size: SetSize = 4000
    seed: Seed = 0

    @property
    def density(self) -> DoubleWells:
        return DoubleWells(self)


class DoubleWells:
    """exp(-E) / Z of four particles."""

    def __init__(self, data: DoubleWellsData) -> None:
        self.scale = data.scale

    def draw(self, count: int, source: np.random.Generator) -> Float64[ndarray, "count 6"]:
        """Run a chain for each point: a particle after another, from a Gaussian."""
        x = 2.6 * source.standard_normal((4, count, 2))
        for sweep in range(SWEEPS):
            for i in range(4):
                there = x[i] + MOVES[sweep % 2] * source.standard_normal((count, 2))
                others = np.delete(x, i, axis=0)
                gained = _energy(x[i], others) - _energy(there, others)
                accepted = np.log(source.random(count)) < gained
                x[i, accepted] = there[accepted]
        coordinates: ndarray = np.einsum("ik,inp->nkp", Q, x).reshape(count, 6)
        return coordinates / self.scale

    def log_density(self, x: Points) -> PerSample:
        """-E - log Z, normalised."""
        z = self.scale * x.double().reshape(-1, 3, 2)
        energy: Tensor = pair_energy((z.new_tensor(DIFFERENCES) @ z).norm(dim=-1)).sum(1)
        return 6 * log(self.scale) - energy - log_z()


def pair_energy(distance: Any) -> Any:
    """b (d - d_0)² + c (d - d_0)⁴, of an array or a tensor."""
    square = (distance - OFFSET) ** 2
    return SQUARE * square + FOURTH * square**2


def _energy(particle: ndarray, others: ndarray) -> ndarray:
    """Return what of E a particle has a part in."""
    energy: ndarray = pair_energy(np.linalg.norm(particle - others, axis=-1)).sum(0)
    return energy


@cache
def log_z() -> float:
    """log ∫ exp(-E) dz, by quadrature.

    With k = exp(-pair_energy), and f(y) that of a particle at y with two others at a distance r,
    Z = ¼ ∫ 2π r k(r) ∬ f(y) k(|y - y'|) f(y') dy dy' dr; 4 belongs to z ↦ (x_2, x_3, x_4) - x_1.
    """
    from scipy.signal import fftconvolve  # slow

    axis = np.arange(-REACH, REACH + STEP / 2, STEP)
    plane = np.stack(np.meshgrid(axis, axis), -1)
    wide = np.arange(1 - len(axis), len(axis)) * STEP
    kernel = np.exp(-pair_energy(np.hypot(wide, wide[:, None])))
    total = 0.0
    for r in np.arange(STEP / 2, REACH, STEP / 2):
        f = np.exp(-_energy(plane, np.array([[-r / 2, 0], [r / 2, 0]])[:, None, None]))
        inner = (f * fftconvolve(f, kernel, mode="same")).sum()
        total += 2 * pi * r * float(np.exp(-pair_energy(r)) * inner)
    return log(total * STEP**5 / 2 / 4)
