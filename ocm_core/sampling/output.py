"""The files of `ocm sample`: a store of samples, one of decoded images for latents, and a grid.

The store of samples is like those of the stage `sample`. An interrupted run is resumed: stores are
completed, and the grid is written last.
"""

from __future__ import annotations

import shutil
import sys
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from torch.nn.functional import pad
from tqdm import tqdm

from ocm_core.errors import OcmError
from ocm_core.io.checksums import remove_records
from ocm_core.sampling.request import SampleGenerator
from ocm_core.stages._images import SampleImages
from ocm_core.stages.sample import CellSamples
from ocm_core.store import writer
from ocm_core.store.layout import StoreLayout
from ocm_core.store.reader import open_split
from ocm_core.text import save_grid

SHOWN = 256  # most images in the grid
SIDE = 64  # pixels to which the side of a small image is enlarged


@dataclass(frozen=True)
class SampleFiles:
    """None where samples are no images, or need no decoding."""

    samples: Path
    decoded: Path | None
    grid: Path | None

    @classmethod
    def of(cls, generator: SampleGenerator, folder: Path) -> SampleFiles:
        """Return the files of a generator in a folder."""
        images = generator.image_shape is not None
        latent = images and generator.image_shape != generator.shape
        return cls(
            samples=folder / f"{generator.name}.zarr",
            decoded=folder / f"{generator.name}-decoded.zarr" if latent else None,
            grid=folder / f"{generator.name}.png" if images else None,
        )

    @property
    def all(self) -> list[Path]:
        """Return the files that there are."""
        return [path for path in (self.samples, self.decoded, self.grid) if path is not None]


def write(generator: SampleGenerator, count: int, folder: Path, force: bool) -> SampleFiles:
    """Draw the samples, and write their files."""
    files = SampleFiles.of(generator, folder)
    _make_room(files, force)
    folder.mkdir(parents=True, exist_ok=True)
    _write_samples(generator, count, files.samples)
    if generator.image_shape is not None and files.grid is not None:
        drawn = CellSamples(open_split([folder], generator.name), first=0, count=count, clamped=0.0)
        images = SampleImages(drawn, generator.to_images, generator.levels)
        if files.decoded is not None:
            _write_decoded(generator, images, files.decoded)
        shown = pad(images[: min(count, SHOWN)].float() / 127.5 - 1, (0, 1, 0, 1))  # a grey seam
        save_grid(shown, files.grid, zoom=max(1, SIDE // generator.image_shape[-1]))
    for path in files.all:
        remove_records(path)
    return files


def _make_room(files: SampleFiles, force: bool) -> None:
    if force:
        for path in files.all:
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    elif all(path.exists() for path in files.all):
        raise OcmError(f"{files.samples}: is there already; --force writes it anew")


def _write_samples(generator: SampleGenerator, count: int, path: Path) -> None:
    batch = min(count, generator.batch_size)
    plan = StoreLayout(
        items=range(count),
        shape=generator.shape,
        dtype="float32",
        labelled=generator.labelled,
        chunk=batch,
        shard=batch,
    )
    writer.begin(path, plan, {**generator.attributes, "ocm-core": version("ocm-core")})
    missing = writer.missing(path, plan)
    total, silent = len(missing) * generator.steps, not sys.stderr.isatty()
    with tqdm(total=total, desc="sampling", unit="step", disable=silent, leave=False) as bar:
        writer.write_shards(
            path, plan, missing, lambda rows: generator.draw(rows, lambda *_: bar.update())
        )
    writer.verify(path, plan)


def _write_decoded(generator: SampleGenerator, images: SampleImages, path: Path) -> None:
    batch = min(len(images), generator.batch_size)
    plan = StoreLayout(
        items=range(len(images)),
        shape=generator.image_shape or (),
        dtype="uint8",
        levels=256,
        chunk=batch,
        shard=batch,
    )
    attributes = {"samples": f"{generator.name}.zarr"}
    writer.write(path, plan, lambda rows: {"x": images[rows.start : rows.stop].numpy()}, attributes)
