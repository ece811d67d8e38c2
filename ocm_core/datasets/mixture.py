"""Points of a Gaussian mixture; `diffusion/mixture.py` has its closed forms."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from ocm_core.datasets.base import DrawnData
from ocm_core.schema.block import Params, Positive, Seed, SetSize

if TYPE_CHECKING:
    from ocm_core.diffusion.mixture import Mixture


class GridLayout(Params):
    """Modes on a square grid centred at the origin."""

    kind: Literal["grid"]
    per_axis: Annotated[int, Field(ge=1, le=100)]
    spacing: Positive


class UniformLayout(Params):
    """Modes drawn once, uniformly over a square, from a recorded seed."""

    kind: Literal["uniform"]
    modes: Annotated[int, Field(ge=1, le=10**4)]
    half_width: Positive
    seed: Seed


class MixtureData(DrawnData):
    """An equal-weight mixture of isotropic Gaussians in the plane, in units of `scale`."""

    shape: ClassVar[tuple[int, ...]] = (2,)
    kind: Literal["mixture"]
    layout: Annotated[GridLayout | UniformLayout, Field(discriminator="kind")]
    std: Positive
    scale: Positive = 1.0
    train_size: SetSize = 20_000
    test_size: SetSize = 4000
    seed: Seed = 0

    @property
    def density(self) -> Mixture:
        from ocm_core.diffusion.mixture import mixture

        return mixture(self)
