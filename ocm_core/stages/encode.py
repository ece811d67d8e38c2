"""Write the data set into Zarr: as it is, or through the autoencoder and the text encoder."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

from ocm_core.pipeline.artifacts import Artifact
from ocm_core.pipeline.stage import Stage, Task, Work
from ocm_core.schema.block import Params
from ocm_core.stages.fetch_data import FetchedData, data_modules, open_data
from ocm_core.stages.fetch_vae import FetchedVae
from ocm_core.stages.vae import TrainedVae

if TYPE_CHECKING:
    from numpy import ndarray
    from torch import Tensor

    from ocm_core.datasets.base import Captions, Split
    from ocm_core.pipeline.job import Inputs, Job
    from ocm_core.schema.experiment import Experiment
    from ocm_core.store.layout import DType
    from ocm_core.store.reader import StoredSplit


def _parts(experiment: Experiment) -> list[str]:
    jobs = experiment.encode.jobs
    return ["all"] if jobs == 1 else [f"{job + 1}of{jobs}" for job in range(jobs)]


def encode_tasks(experiment: Experiment) -> list[Task]:
    """Return the tasks whose artifacts are the stored data set, together."""
    return [Encoded.task(part) for part in _parts(experiment)]


def latent_modules(experiment: Experiment) -> list[str]:
    """Return the modules that only experiments on latents use."""
    latent = experiment.encode.latent
    if latent is None:
        return []
    return ["ocm_core.stages._latents", *["ocm_core.stages._prompts"] * (latent.text is not None)]


VAE = (FetchedVae.task(), TrainedVae.task())  # one of them, where there is an autoencoder

STAGE: Stage[Params] = Stage(
    __name__,
    "encode",
    parts=_parts,
    takes=lambda experiment, part: [FetchedData.task(), *VAE],
    reads=("data", "encode"),
    plugins=lambda experiment, part: [*data_modules(experiment), *latent_modules(experiment)],
    gpu=lambda experiment: experiment.encode.latent is not None,
    memory=16_000,
    work=lambda experiment, part: Work(
        sum(experiment.data.count_items().values()) / experiment.encode.jobs
        if experiment.encode.latent
        else 0.0,
        "vae",
    ),
)


class Encoded(Artifact):
    """Zarr stores, one per split; several parts are read as one."""


def open_split(job: Inputs, split: str) -> StoredSplit:
    """Open a split of the stored data set."""
    from ocm_core.store import reader

    return reader.open_split([part.folder for part in job.all(Encoded).values()], split)


def unseen_split(job: Inputs) -> str:
    """Return the name of the test split, or of the training split where there is no other."""
    from ocm_core.store.layout import store_path

    folders = (part.folder for part in job.all(Encoded).values())
    return "test" if any(store_path(folder, "test").exists() for folder in folders) else "train"


def read_rows(job: Inputs, split: str, rows: range, labelled: bool) -> tuple[Tensor, Tensor | None]:
    """Read items onto the device, with their labels if they are wanted and there are any."""
    import torch

    stored = open_split(job, split)
    x0 = torch.from_numpy(stored.read(rows)).to(job.device)
    if not labelled or stored.labels is None:
        return x0, None
    return x0, torch.from_numpy(stored.labels[rows.start : rows.stop]).to(job.device)


class Encoding(Protocol):
    """How images are written: in which type, and by which function of them."""

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
class Identity:
    """Writes the data as they are."""

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
    """The split, and then once more with every image mirrored: item n + count mirrors item n."""

    split: Split

    def __len__(self) -> int:
        return 2 * len(self.split)

    @property
    def labels(self) -> ndarray | None:
        import numpy as np

        labels = self.split.labels
        return None if labels is None else np.concatenate([labels, labels])

    @property
    def captions(self) -> Captions:
        captions = self.split.captions
        return None if captions is None else [*captions, *captions]

    def read(self, rows: range) -> ndarray:
        import numpy as np

        count = len(self.split)
        plain = range(rows.start, min(rows.stop, count))
        mirrored = range(max(rows.start, count) - count, rows.stop - count)
        pieces = [self.split.read(plain)] if plain else []
        pieces += [self.split.read(mirrored)[..., ::-1]] if mirrored else []
        return np.concatenate(pieces)


class ReadAhead:
    """A split that is read in order: while some rows are used, the next ones are read."""

    def __init__(self, split: Split, stop: int) -> None:
        self.split, self.stop = split, stop
        self._coming: dict[range, Future[ndarray]] = {}

    def read(self, rows: range) -> ndarray:
        from ocm_core.prefetch import in_background

        coming = self._coming.pop(rows, None)
        values = self.split.read(rows) if coming is None else coming.result()
        if following := range(rows.stop, min(rows.stop + len(rows), self.stop)):
            self._coming = {following: in_background(self.split.read, following)}
        return values


def run(job: Job) -> None:
    data, settings = open_data(job), job.experiment.encode
    encoding: Encoding = Identity(data.levels, {"provenance": dict(data.provenance)})
    if settings.latent:
        encoding = import_module("ocm_core.stages._latents").encoding(job, data)
    counts = {}
    for name, split in data.splits.items():
        whole = Mirrored(split) if settings.flips and name == "train" else split
        counts[name] = _write(job, name, whole, encoding)
    if settings.latent and settings.latent.text:
        counts["prompts"] = import_module("ocm_core.stages._prompts").write(job, data)
    job.note(items=counts, shape=list(job.experiment.shape))


def _write(job: Job, name: str, split: Split, encoding: Encoding) -> int:
    """Write this job's range of the split."""
    from ocm_core.store import writer
    from ocm_core.store.layout import StoreLayout, share, store_path

    labels, settings = split.labels, job.experiment.encode
    plan = StoreLayout(
        items=share(job.part, len(split), settings.shard),
        shape=job.experiment.shape,
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
