"""The files of `ocm sample`: a store of what was sampled, one of what it decodes to, and a grid.

The store is like those of the stage `sample`. A killed run goes on where it was: a store is whole
or resumed, and the grid is written last.
"""

from __future__ import annotations

import shutil
import sys
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from torch.nn.functional import pad
from tqdm import tqdm

from ocm_core.artifacts.images import SampleImages
from ocm_core.artifacts.samples import CellSamples
from ocm_core.errors import OcmError
from ocm_core.generate.request import Source
from ocm_core.image_grid import save_grid
from ocm_core.store import writer as store
from ocm_core.store.layout import StoreLayout
from ocm_core.store.reader import open_split

SHOWN = 256  # most images in the grid
SIDE = 64  # pixels that the side of a small image is enlarged to


@dataclass(frozen=True)
class Files:
    """What is there afterwards; None where there is no image, or nothing to decode."""

    samples: Path
    decoded: Path | None
    grid: Path | None

    @classmethod
    def of(cls, source: Source, folder: Path) -> Files:
        images = source.image_shape is not None
        latent = images and source.image_shape != source.shape
        return cls(
            samples=folder / f"{source.name}.zarr",
            decoded=folder / f"{source.name}-decoded.zarr" if latent else None,
            grid=folder / f"{source.name}.png" if images else None,
        )

    @property
    def all(self) -> list[Path]:
        return [path for path in (self.samples, self.decoded, self.grid) if path is not None]


def write(source: Source, count: int, folder: Path, force: bool) -> Files:
    files = Files.of(source, folder)
    _make_room(files, force)
    folder.mkdir(parents=True, exist_ok=True)
    _write_samples(source, count, files.samples)
    if source.image_shape is not None and files.grid is not None:
        drawn = CellSamples(open_split([folder], source.name), first=0, count=count, clamped=0.0)
        images = SampleImages(drawn, source.to_images, source.levels)
        if files.decoded is not None:
            _write_decoded(source, images, files.decoded)
        shown = pad(images[: min(count, SHOWN)].float() / 127.5 - 1, (0, 1, 0, 1))  # a grey seam
        save_grid(shown, files.grid, zoom=max(1, SIDE // source.image_shape[-1]))
    return files


def _make_room(files: Files, force: bool) -> None:
    if force:
        for path in files.all:
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    elif all(path.exists() for path in files.all):
        raise OcmError(f"{files.samples}: is there already; --force writes it anew")


def _write_samples(source: Source, count: int, path: Path) -> None:
    batch = min(count, source.batch_size)
    plan = StoreLayout(
        items=range(count),
        shape=source.shape,
        dtype="float32",
        labelled=source.labelled,
        chunk=batch,
        shard=batch,
    )
    store.begin(path, plan, {**source.attributes, "ocm-core": version("ocm-core")})
    missing = store.missing(path, plan)
    total, silent = len(missing) * source.steps, not sys.stderr.isatty()
    with tqdm(total=total, desc="sampling", unit="step", disable=silent, leave=False) as bar:
        store.write_shards(
            path, plan, missing, lambda rows: source.draw(rows, lambda *_: bar.update())
        )
    store.verify(path, plan)


def _write_decoded(source: Source, images: SampleImages, path: Path) -> None:
    batch = min(len(images), source.batch_size)
    plan = StoreLayout(
        items=range(len(images)),
        shape=source.image_shape or (),
        dtype="uint8",
        levels=256,
        chunk=batch,
        shard=batch,
    )
    attributes = {"samples": f"{source.name}.zarr"}
    store.write(path, plan, lambda rows: {"x": images[rows.start : rows.stop].numpy()}, attributes)
