"""The interface of a data set: its parameters, and splits that need not fit in memory."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Protocol

import numpy as np
from jaxtyping import Float32, Float64, Int64, UInt8
from numpy import ndarray
from PIL import Image
from PIL.Image import Resampling
from pydantic import Field

from ocm_core.errors import OcmError
from ocm_core.io.archives import Archive, IndexedMembers, Located, locate
from ocm_core.io.image_files import SelectedFiles, open_image
from ocm_core.io.reading import reading
from ocm_core.schema.block import Params

if TYPE_CHECKING:
    from torch import Tensor

    from ocm_core.shapes import PerSample, Points

RawValues = UInt8[ndarray, "n c h w"] | Float32[ndarray, "n d"]  # grey levels, or points
ItemLabels = Int64[ndarray, " item"] | None
Captions = Sequence[str] | None
Share = Annotated[float, Field(gt=0, lt=1)]
Splits = Annotated[list[Literal["train", "test"]], Field(min_length=1, max_length=2)]


@dataclass(frozen=True)
class Split:
    """The training or the test items of a data set, which need not fit in memory."""

    count: int
    shape: tuple[int, ...]  # of one item
    item: Callable[[int], ndarray]  # reads the one at a place
    labels: ItemLabels = None  # the class of every item, where the data set has classes
    captions: Captions = None
    dtype: type = np.uint8

    def __len__(self) -> int:
        return self.count

    def read(self, rows: range) -> RawValues:
        """Read the items at these places."""
        values: RawValues = np.empty((len(rows), *self.shape), self.dtype)
        for value, row in zip(values, rows, strict=True):
            value[:] = self.item(range(self.count)[row])  # refuses places that do not exist
        return values


@dataclass(frozen=True)
class DataSet:
    """The splits of a data set, and where they come from."""

    splits: Mapping[str, Split]  # "train", "test"
    levels: int | None  # how many grey levels; None for points
    provenance: Mapping[str, Any]  # JSON values: checksums of the archives, permutation, crop


class DataParams(Params):
    """The parameters of a data set, and the facts that follow from them."""

    levels: ClassVar[int | None] = 256  # grey levels 0 … levels - 1; None for points
    archived: ClassVar[bool] = False  # whether it has to be fetched first

    if TYPE_CHECKING:  # fields, class variables or properties of each kind
        kind: str

        @property
        def shape(self) -> tuple[int, ...]:
            """The shape of one item: channels, rows, columns; or the dimensions of a point."""

        @property
        def classes(self) -> int:
            """The number of classes; 0 without labels."""

    def open(self, archives: Path) -> DataSet:
        """Open the data set; `archives` is the folder of the published files."""
        raise NotImplementedError

    def count_items(self) -> dict[str, int]:
        """Count the items of each split without opening the data set."""
        raise NotImplementedError

    def needed_archives(self) -> Mapping[str, Archive]:
        """Return the published files that `open` reads, by name."""
        return {}

    def user_files(self) -> dict[str, Path]:
        """Return the user's own files that `open` reads, by the key that names them."""
        return {}


class ArchivedData(DataParams):
    """A data set in published archives, which its module declares as `ARCHIVES`.

    One whose name begins with `train` or `test` is needed for that split only.
    """

    archived: ClassVar[bool] = True
    items: ClassVar[Mapping[str, int]]  # of each split, as published

    def count_items(self) -> dict[str, int]:
        return {split: self.items[split] for split in getattr(self, "splits", self.items)}

    def needed_archives(self) -> dict[str, Archive]:
        unwanted = {"train", "test"} - self.count_items().keys()
        archives: dict[str, Archive] = sys.modules[type(self).__module__].ARCHIVES
        return {name: file for name, file in archives.items() if name.split("/")[0] not in unwanted}

    def open(self, archives: Path) -> DataSet:
        files = {name: locate(file, archives) for name, file in self.needed_archives().items()}
        splits, provenance = self.read(files)
        checksums = {file.path.name: file.sha256 for file in files.values()}
        return DataSet(splits, self.levels, {"archives": checksums, **provenance})

    def read(self, files: Mapping[str, Located]) -> tuple[dict[str, Split], dict[str, Any]]:
        """Return the splits, and what the provenance says beside the checksums of the files."""
        raise NotImplementedError


def array_split(values: RawValues, labels: ItemLabels = None, captions: Captions = None) -> Split:
    """Return an array in memory as a split."""
    kind = values.dtype.type
    return Split(len(values), values.shape[1:], values.__getitem__, labels, captions, kind)


def joined_split(
    batches: Sequence[UInt8[ndarray, "_ values"]],
    labels: Int64[ndarray, " item"],
    shape: tuple[int, ...],
) -> Split:
    """Return flat images in several arrays, one after another in memory maps, as a split."""
    starts = np.cumsum([0, *map(len, batches)])

    def item(row: int) -> UInt8[ndarray, "c h w"]:
        batch = int(np.searchsorted(starts, row, side="right")) - 1
        image: ndarray = batches[batch][row - starts[batch]].reshape(shape)
        return image

    return Split(len(labels), shape, item, labels)


def image_split(
    images: IndexedMembers | SelectedFiles,
    prepare: Callable[[Image.Image], Image.Image],
    shape: tuple[int, ...],  # of what `prepare` returns
    labels: ItemLabels = None,
    captions: Captions = None,
    size: tuple[int, int] | None = None,  # width and height in the archive, where all have the same
) -> Split:
    """Return encoded images as a split that decodes and crops them when they are read."""
    channels, side, _ = shape

    def item(row: int) -> UInt8[ndarray, "c side side"]:
        where = images.where(row)
        image = decode(images.content(row), where)
        if size not in (None, image.size):
            expected = f"expected an image of size {size}, found {image.size}"
            raise OcmError(f"{where}: {expected}; check that the archive is the published one")
        return np.asarray(prepare(image)).reshape(side, side, channels).transpose(2, 0, 1)

    return Split(len(images), shape, item, labels, captions)


def decode(content: bytes, where: str) -> Image.Image:
    """Decode an image of an allowed format and size to RGB."""
    with reading(where, "a whole JPEG, PNG or WebP image", "remove the archive, fetch it again"):
        return open_image(content).convert("RGB")


def centre_crop(image: Image.Image, side: int, resampling: Resampling) -> Image.Image:
    """Scale so that the shorter edge is `side` long, and cut the centre out."""
    scale = side / min(image.size)
    image = image.resize((round(image.width * scale), round(image.height * scale)), resampling)
    left, top = (image.width - side) // 2, (image.height - side) // 2
    return image.crop((left, top, left + side, top + side))


@dataclass(frozen=True)
class EightBitSplit:
    """A split as feature spaces take it: uint8 tensors, whatever the number of grey levels."""

    split: Split
    levels: int

    def __len__(self) -> int:
        return len(self.split)

    def __getitem__(self, rows: slice) -> UInt8[Tensor, "n channel height width"]:
        import torch

        values = self.split.read(range(*rows.indices(len(self.split))))
        return eight_bit(torch.from_numpy(values).double(), self.levels)


def eight_bit(values: Tensor, levels: int) -> UInt8[Tensor, "n channel height width"]:
    """Spread grey levels 0 … levels - 1 over 0 … 255."""
    return (values * (255 / (levels - 1))).round().byte()


def distinct(captions: Iterable[str]) -> list[str]:
    """Return the different captions, in the order in which they are numbered as classes."""
    return sorted(set(captions))


def permutation(count: int, seed: int, split: int = 0) -> Int64[ndarray, " count"]:
    """Return a permutation that depends on the seed and the split alone."""
    from ocm_core.rng.streams import dataset_stream

    # NumPy promises that a generator's raw words never change; of `permutation` it does not
    words = dataset_stream(seed, split).bit_generator.random_raw(count)
    return np.argsort(words, kind="stable").astype(np.int64)


def recorded(order: Int64[ndarray, " count"], seed: int) -> dict[str, int | str]:
    """Return the seed and the checksum of a permutation, for the provenance."""
    return {"seed": seed, "sha256": hashlib.sha256(order.astype("<i8").tobytes()).hexdigest()}


def divided_sizes(count: int, test_share: float) -> dict[str, int]:
    """Return how many of `count` items are for training and for testing."""
    test = ceil(test_share * count)
    return {"train": count - test, "test": test}


class DividedData(DataParams):
    """Images in memory, divided by a recorded permutation: first for training, then for testing."""

    if TYPE_CHECKING:  # fields, class variables or properties of each kind
        test_share: float
        seed: int
        source: ClassVar[str]

        @property
        def count(self) -> int:
            """The number of images in all."""

    def read(self) -> tuple[UInt8[ndarray, "n c h w"], Int64[ndarray, " n"]]:
        """Return all images and their classes."""
        raise NotImplementedError

    def open(self, archives: Path) -> DataSet:
        values, labels = self.read()
        order, train = permutation(len(values), self.seed), self.count_items()["train"]
        parts = {"train": order[:train], "test": order[train:]}
        splits = {split: array_split(values[rows], labels[rows]) for split, rows in parts.items()}
        sha256 = hashlib.sha256(values.tobytes() + labels.astype("<i8").tobytes()).hexdigest()
        provenance = {"sha256": sha256, "permutation": recorded(order, self.seed)}
        return DataSet(splits, self.levels, {"source": self.source, **provenance})

    def count_items(self) -> dict[str, int]:
        return divided_sizes(self.count, self.test_share)


class Density(Protocol):
    """A density that is known, and can be drawn from."""

    def draw(self, count: int, source: np.random.Generator) -> Float64[ndarray, "count d"]: ...
    def log_density(self, x: Points) -> PerSample: ...


class DrawnData(DataParams):
    """Points of a density that is known."""

    levels: ClassVar[int | None] = None
    classes: ClassVar[int] = 0
    if TYPE_CHECKING:  # fields, class variables or properties of each kind
        train_size: int
        test_size: int
        seed: int

        @property
        def density(self) -> Density:
            """The density of the points, normalised."""

    def open(self, archives: Path) -> DataSet:
        from ocm_core.rng.streams import Stream, stream

        splits = {}
        for number, (split, size) in enumerate(self.count_items().items()):
            source = stream(Stream.MIXTURE_POINTS, self.seed, part=number)
            splits[split] = array_split(self.density.draw(size, source).astype(np.float32))
        drawn = f"drawn from the {self.kind.replace('_', ' ')}"
        return DataSet(splits, None, {"source": drawn, "seed": self.seed})

    def count_items(self) -> dict[str, int]:
        return {"train": self.train_size, "test": self.test_size}
