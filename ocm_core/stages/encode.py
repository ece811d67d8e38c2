"""Write the data set into Zarr: as it is, or through the autoencoder and the text encoder."""

from __future__ import annotations

from concurrent.futures import Future
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch

from ocm_core.datasets.base import DataSet, Split
from ocm_core.prefetch import in_background
from ocm_core.stages import Artifact, Experiment, Inputs, Job, Params, Stage, Task, Work, require
from ocm_core.stages.fetch_data import FetchedData, data_modules, open_data
from ocm_core.stages.fetch_vae import VAE, load_vae, text_modules, vae_modules
from ocm_core.store import reader, writer
from ocm_core.store.reader import store_path

if TYPE_CHECKING:  # a plug-in of experiments on latents, which imports diffusers
    from ocm_core.latents.vae import LatentEncoding


def _parts(experiment: Experiment) -> list[str]:
    jobs = experiment.encode.jobs
    return ["all"] if jobs == 1 else [f"{job + 1}of{jobs}" for job in range(jobs)]


def encode_tasks(experiment: Experiment) -> list[Task]:
    """Return the tasks whose artifacts are the stored data set, together."""
    return [Encoded.task(part) for part in _parts(experiment)]


STAGE: Stage[Params] = Stage(
    __name__,
    "encode",
    parts=_parts,
    takes=lambda experiment, part: [FetchedData.task(), *VAE],
    reads=("data", "encode"),
    plugins=lambda e, part: [*data_modules(e), *vae_modules(e), *text_modules(e)],
    gpu=lambda experiment: experiment.encode.latent is not None,
    work=lambda e, part: Work(
        sum(e.data.count_items().values()) / e.encode.jobs if e.encode.latent else 0.0, "encoder"
    ),
)


class Encoded(Artifact):
    """Zarr stores, one per split; several parts are read as one."""


def open_split(job: Inputs, split: str) -> reader.StoredSplit:
    """Open a split of the stored data set."""
    return reader.open_split([part.folder for part in job.all(Encoded).values()], split)


def count_images(job: Inputs, wanted: int | None) -> int:
    """Return how many test images are looked at: all of them where nobody says."""
    stored = len(open_split(job, "test"))
    return min(wanted or stored, stored)


def read_rows(
    job: Inputs, split: str, rows: reader.Rows, labelled: bool
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Read items onto the device, with their labels if they are wanted and there are any."""
    stored = open_split(job, split)
    x0 = torch.from_numpy(stored.read(rows)).to(job.device)
    if not labelled or stored.labels is None:
        return x0, None
    return x0, torch.from_numpy(stored.labels[np.asarray(rows)]).to(job.device)


def mirrored(split: Split) -> Split:
    """Return the split, and once more with every image mirrored: item n + count mirrors item n."""
    count, labels, captions = split.count, split.labels, split.captions

    def item(row: int) -> np.ndarray:
        return split.item(row) if row < count else split.item(row - count)[..., ::-1]

    twice = None if labels is None else np.concatenate([labels, labels])
    said = None if captions is None else [*captions, *captions]
    return Split(2 * count, split.shape, item, twice, said, split.dtype)


def run(job: Job) -> None:
    """Write every split, and the prompts of a model that takes text."""
    data, settings = open_data(job), job.experiment.encode
    encoding: LatentEncoding | None = None
    if latent := settings.latent:
        encoding = import_module("ocm_core.latents.vae").LatentEncoding(
            vae=load_vae(job),
            image_levels=require(data.levels),
            posterior=latent.posterior,
            seed=latent.seed,
            batch_size=latent.batch_size,
            provenance=data.provenance,
        )
    splits: dict[str, Split] = dict(data.splits)
    if settings.flips:
        splits["train"] = mirrored(splits["train"])
    counts = {name: _write(job, name, split, data, encoding) for name, split in splits.items()}
    if latent and latent.text:
        place, bar = (job.folder, job.part), partial(job.progress, description="prompts: shards")
        write = import_module("ocm_core.latents.prompts").write_prompts
        counts["prompts"] = write(*place, data, latent, job.device, bar)
    job.note(items=counts, shape=list(job.experiment.shape))


def _write(job: Job, name: str, split: Split, data: DataSet, encoder: LatentEncoding | None) -> int:
    """Write this job's range of the split; while a shard is encoded, the next one is read."""
    labels, settings = split.labels, job.experiment.encode
    levels = None if encoder else data.levels
    dtype: Literal["float32", "uint8"] = "float32" if levels is None else "uint8"
    plan = writer.StoreLayout(
        items=writer.share(job.part, len(split), settings.shard),
        shape=job.experiment.shape,
        dtype=dtype,
        levels=levels,
        labelled=labels is not None,
        spread=encoder is not None and encoder.spread,
        chunk=settings.chunk,
        shard=settings.shard,
    )
    coming: dict[range, Future[np.ndarray]] = {}

    def read_shard(rows: range) -> dict[str, np.ndarray]:
        images = coming.pop(rows).result() if rows in coming else split.read(rows)
        coming.clear()
        if following := range(rows.stop, min(rows.stop + len(rows), plan.items.stop)):
            coming[following] = in_background(split.read, following)
        label = {} if labels is None else {"label": labels[rows.start : rows.stop]}
        values = encoder(images, rows) if encoder else {"x": images.astype(dtype)}
        return values | label

    writer.write(
        store_path(job.folder, name),
        plan,
        read_shard,
        encoder.attrs if encoder else {"provenance": dict(data.provenance)},
        partial(job.progress, description=f"{name}: shards"),
    )
    return len(plan.items)
