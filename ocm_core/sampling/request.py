"""Samples on request: the options of `ocm sample`, a model with a recipe, and the files it writes.

An interrupted run is resumed: stores are completed, the grid of images comes last.
"""

import re
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch.nn.functional import pad
from tqdm import tqdm

from ocm_core.diffusion.denoiser import Denoiser
from ocm_core.diffusion.gaussian import Decoder
from ocm_core.errors import OcmError
from ocm_core.features.images import Decode, SampleImages
from ocm_core.io.checksums import remove_records
from ocm_core.pipeline.job import Device
from ocm_core.sampling.recipe import AnyRecipe, Watcher, class_labels, draw_rows
from ocm_core.schema.experiment import Order, PresetName
from ocm_core.schema.timesteps import TimestepsParams
from ocm_core.stages.sample import CellSamples
from ocm_core.store import writer
from ocm_core.store.reader import open_split
from ocm_core.text import save_grid
from ocm_core.uses.codec import ImageCodec, image_codec

MOST = 40  # characters of a prompt in the name of a file
SHOWN = 256  # most images in the grid
SIDE = 64  # pixels to which the side of a small image is enlarged


@dataclass(frozen=True)
class SampleRequest:
    """The options of `ocm sample`; None leaves a choice to the experiment or the model."""

    method: str | None
    steps: int
    seed: int = 0
    sampler: str | None = None
    preset: PresetName | None = None
    order: Order | None = None
    timesteps: TimestepsParams | None = None
    score: str | None = None
    guidance: float = 1.0
    label: int | None = None
    prompt: str | None = None
    from_data: bool = False
    device: Device = "auto"
    threads: int = 1

    @property
    def suffix(self) -> str:
        """Return the end of the files' names, for example `-order2-power-2.0-10-seed0`."""
        parts = [] if self.order is None else [f"order{self.order}"]
        if self.timesteps is not None:
            parts += _words(str([*self.timesteps.model_dump(exclude_none=True).values()]))
        parts += [f"seed{self.seed}", *["from-data"] * self.from_data]
        if self.label is not None:
            parts.append(f"label{self.label}")
        if self.prompt is not None:
            parts.append("-".join(_words(self.prompt))[:MOST])
        return "".join(f"-{part}" for part in parts)


def _words(text: str) -> list[str]:
    return re.findall(r"[\w.]+", text)


@dataclass(frozen=True)
class SampleGenerator:
    """A model with a recipe; `attributes` are all that a sample depends on beside its index."""

    name: str  # of the files
    request: SampleRequest
    recipe: AnyRecipe
    denoiser: Denoiser
    device: str
    classes: int  # of a model that is conditional on them
    batch_size: int
    shape: tuple[int, ...]  # of a sample: a point, an image or latents
    image_shape: tuple[int, ...] | None  # None: samples are points and no images
    to_images: Decode
    attributes: Mapping[str, Any]
    levels: int = 256  # grey levels of the images

    def __post_init__(self) -> None:
        label = self.request.label
        if label is not None and not self.denoiser.network.conditional:
            raise OcmError(f"--label {label}: the network takes no classes")
        if label is not None and label >= self.classes:
            raise OcmError(f"--label {label}: expected 0 to {self.classes - 1}")

    @property
    def codec(self) -> ImageCodec:
        """Return the code for its images."""
        levels = self.levels if self.shape == self.image_shape else None
        decoder = Decoder(levels, variance="method")
        return image_codec(self.recipe, self.denoiser, decoder, self.shape)

    def draw(self, rows: range, watch: Watcher) -> writer.ShardValues:
        """Draw the samples with these indices, and their labels if the model takes any."""
        seed, device = self.request.seed, self.device
        labels = class_labels(self.denoiser, self.classes, seed, rows, device)
        if labels is not None and self.request.label is not None:
            labels = torch.full_like(labels, self.request.label)
        what = self.recipe, self.denoiser, self.shape, rows, seed, labels
        values = {"x": draw_rows(*what, device=device, watch=watch).x.cpu().numpy()}
        return values if labels is None else {**values, "label": labels.cpu().numpy()}


def write(
    generator: SampleGenerator, count: int, folder: Path, force: bool
) -> tuple[dict[str, Any], str]:
    """Draw the samples, and say which files have them; none where they are no images or latents."""
    stem, image_shape = folder / generator.name, generator.image_shape
    latent = image_shape not in (None, generator.shape)
    samples = Path(f"{stem}.zarr")
    decoded = Path(f"{stem}-decoded.zarr") if latent else None
    grid = None if image_shape is None else Path(f"{stem}.png")
    files = [path for path in (samples, decoded, grid) if path is not None]
    if force:
        for path in files:
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    elif all(path.exists() for path in files):
        raise OcmError(f"{samples}: is there already; --force writes it anew")
    folder.mkdir(parents=True, exist_ok=True)
    batch = min(count, generator.batch_size)
    layout = partial(writer.StoreLayout, items=range(count), chunk=batch, shard=batch)
    labelled = generator.denoiser.network.conditional
    plan = layout(shape=generator.shape, dtype="float32", labelled=labelled)
    writer.begin(samples, plan, {**generator.attributes, "ocm-core": version("ocm-core")})
    missing = writer.missing(samples, plan)
    total, silent = len(missing) * generator.request.steps, not sys.stderr.isatty()
    with tqdm(total=total, desc="sampling", unit="step", disable=silent, leave=False) as bar:
        draw = partial(generator.draw, watch=lambda *_: bar.update())
        writer.write_shards(samples, plan, missing, draw)
    writer.verify(samples, plan)
    if image_shape is not None and grid is not None:
        drawn = CellSamples(open_split([folder], generator.name))
        images = SampleImages(drawn, generator.to_images, generator.levels)
        if decoded is not None:
            writer.write(
                decoded,
                layout(shape=image_shape, dtype="uint8", levels=256),
                lambda rows: {"x": images[rows.start : rows.stop].numpy()},
                {"samples": samples.name},
            )
        shown = pad(images[: min(count, SHOWN)].float() / 127.5 - 1, (0, 1, 0, 1))  # a grey seam
        save_grid(shown, grid, zoom=max(1, SIDE // image_shape[-1]))
    for path in files:
        remove_records(path)
    named = {"samples": samples, "decoded": decoded, "grid": grid}
    tree = {name: None if path is None else str(path) for name, path in named.items()}
    return {**tree, "count": count}, f"{count} samples: {', '.join(map(str, files))}"
