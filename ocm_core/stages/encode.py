"""Write the data set into the Zarr store: as it is, or through the autoencoder and text encoder."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy import ndarray

from ocm_core.ahead import beside
from ocm_core.artifacts.dataset import open_data
from ocm_core.datasets.interface import Captions, Split
from ocm_core.store import writer
from ocm_core.store.layout import DType, StoreLayout, share, store_path

if TYPE_CHECKING:
    from ocm_core.pipeline.job import Job


class Encoding(Protocol):
    """What is written for images: its shape and type, and how it is made from them."""

    @property
    def dtype(self) -> DType: ...
    @property
    def levels(self) -> int | None: ...
    @property
    def spread(self) -> bool: ...
    @property
    def attrs(self) -> dict[str, Any]: ...
    def __call__(self, images: ndarray, rows: range) -> dict[str, ndarray]: ...


@dataclass(frozen=True)
class AsItIs:
    levels: int | None
    attrs: dict[str, Any]
    spread: bool = False

    @property
    def dtype(self) -> DType:
        return "float32" if self.levels is None else "uint8"

    def __call__(self, images: ndarray, rows: range) -> dict[str, ndarray]:
        return {"x": images.astype(self.dtype)}


@dataclass(frozen=True)
class Mirrored:
    """The split and then once more, every image mirrored: item n + count mirrors item n."""

    split: Split

    def __len__(self) -> int:
        return 2 * len(self.split)

    @property
    def labels(self) -> ndarray | None:
        labels = self.split.labels
        return None if labels is None else np.concatenate([labels, labels])

    @property
    def captions(self) -> Captions:
        captions = self.split.captions
        return None if captions is None else [*captions, *captions]

    def read(self, rows: range) -> ndarray:
        count = len(self.split)
        plain = range(rows.start, min(rows.stop, count))
        mirrored = range(max(rows.start, count) - count, rows.stop - count)
        pieces = [self.split.read(plain)] if plain else []
        pieces += [self.split.read(mirrored)[..., ::-1]] if mirrored else []
        return np.concatenate(pieces)


class ReadAhead:
    """A split that is read in order: while some rows are used, as many that follow are read."""

    def __init__(self, split: Split, stop: int) -> None:
        self.split, self.stop = split, stop
        self._coming: dict[range, Future[ndarray]] = {}

    def read(self, rows: range) -> ndarray:
        coming = self._coming.pop(rows, None)
        values = self.split.read(rows) if coming is None else coming.result()
        if following := range(rows.stop, min(rows.stop + len(rows), self.stop)):
            self._coming = {following: beside(self.split.read, following)}
        return values


def run(job: Job) -> None:
    data, settings = open_data(job), job.experiment.encode
    encoding: Encoding = AsItIs(data.levels, {"provenance": dict(data.provenance)})
    if settings.latent:
        encoding = import_module("ocm_core.artifacts.autoencoder").encoding(job, data)
    counts = {}
    for name, split in data.splits.items():
        whole = Mirrored(split) if settings.flips and name == "train" else split
        counts[name] = _write(job, name, whole, encoding)
    if settings.latent and settings.latent.text:
        counts["prompts"] = import_module("ocm_core.artifacts.prompts").write(job, data)
    job.note(items=counts, shape=list(job.experiment.shape))


def _write(job: Job, name: str, split: Split, encoding: Encoding) -> int:
    """This job's range of the split."""
    shape, labels = job.experiment.shape, split.labels
    settings = job.experiment.encode
    plan = StoreLayout(
        items=share(job.part, len(split), settings.shard),
        shape=shape,
        dtype=encoding.dtype,
        levels=encoding.levels,
        labelled=labels is not None,
        spread=encoding.spread,
        chunk=settings.chunk,
        shard=settings.shard,
    )

    images = ReadAhead(split, plan.items.stop)

    def read_shard(rows: range) -> dict[str, ndarray]:
        label = {} if labels is None else {"label": labels[rows.start : rows.stop]}
        return encoding(images.read(rows), rows) | label

    def progress(shards: Sequence[range]) -> Iterator[range]:
        return job.progress(shards, f"{name}: shards")

    writer.write(store_path(job.folder, name), plan, read_shard, encoding.attrs, progress)
    return len(plan.items)
