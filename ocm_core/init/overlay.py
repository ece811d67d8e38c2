"""Look at images, and write the text of a first experiment: what its owner may want to change."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from PIL import Image

from ocm_core.datasets.folder import sub_folders
from ocm_core.errors import OcmError
from ocm_core.io.image_files import EXPECTED, FORMATS, images_among, open_image_files
from ocm_core.io.reading import reading
from ocm_core.schema.experiment import downsampling
from ocm_core.text import plural

if TYPE_CHECKING:
    from ocm_core.checkpoints.diffusers_folder import ModelDescription

SAMPLED = 200  # images, spread over all of them; the first stage opens every one
FEWEST = 10  # images that an experiment makes sense with
GREY = ("1", "L", "LA", "I;16")
PICTURES = (".bmp", ".gif", ".tif", ".tiff", ".heic", ".avif")  # formats that are not read
SIDES = (8, 16, 32)  # of a network that is trained here
TINY = 16  # sides up to this one are compared in a smaller feature space


@dataclass(frozen=True)
class ImageSummary:
    """The images of a folder or an archive."""

    path: Path
    names: list[str]
    sizes: Counter[tuple[int, int]]  # width and height of those that were opened
    grey: bool
    folders: tuple[str, ...]  # of classes; none: the images lie in one folder
    skipped: int  # pictures of formats that are not read

    @property
    def shorter_edge(self) -> int:
        """The shorter edge of the commonest size."""
        return min(self.sizes.most_common(1)[0][0])

    def all_are(self, side: int) -> bool:
        return set(self.sizes) == {(side, side)}

    def __str__(self) -> str:
        width, height = self.sizes.most_common(1)[0][0]
        size = f"{width}×{height}"
        if len(self.sizes) > 1:
            size = f"of {len(self.sizes)} sizes, most often {size}"
        classes = f", {plural(len(self.folders), 'sub-folder')}" if self.folders else ""
        skipped = f"; {plural(self.skipped, 'other picture')} skipped" if self.skipped else ""
        colour = "grey" if self.grey else "colour"
        return f"{plural(len(self.names), 'image')}, {size}, {colour}{classes}{skipped}"


def look(path: Path) -> ImageSummary:
    """Open some of the images, and refuse what cannot be an image set."""
    files = open_image_files(path)
    entries, others = images_among(files.entries)
    skipped = sum(count for suffix, count in others.items() if suffix in PICTURES)
    if len(entries) < FEWEST:
        found = f"found {len(entries) or 'none'}"
        found += f", and {plural(skipped, 'other picture')}" if skipped else ""
        raise OcmError(f"{path}: {EXPECTED}, at least {FEWEST}, {found}")
    if empty := [entry.name for entry in entries if entry.size == 0]:
        raise OcmError(f"{files.where(empty[0])}: an empty file; remove or restore it")
    heads: list[tuple[tuple[int, int], str]] = []
    for entry in dict.fromkeys(entries[at * len(entries) // SAMPLED] for at in range(SAMPLED)):
        with (
            suppress(Exception),  # the first stage names damaged files
            Image.open(BytesIO(files.content(entry.name)), formats=FORMATS) as image,
        ):
            heads.append((image.size, image.mode))
    if not heads:
        raise OcmError(f"{path}: none of {SAMPLED} files could be opened as an image")
    names, folders = [entry.name for entry in entries], set[str]()
    with suppress(OcmError):  # some lie outside of any
        folders = {*sub_folders(names, path).values()}
    return ImageSummary(
        path=path,
        names=names,
        sizes=Counter(size for size, _ in heads),
        grey=all(mode in GREY for _, mode in heads),
        folders=tuple(sorted(folders)) if len(folders) > 1 else (),
        skipped=skipped,
    )


@dataclass(frozen=True)
class Start:
    """The images, the model and the wishes that an experiment begins with."""

    name: str
    images: ImageSummary
    model: ModelDescription | None = None
    captions: Path | None = None
    distinct_captions: int = 0
    side: int | None = None  # asked for; None: the model's, or what suits a small network

    @property
    def shape(self) -> tuple[int, int]:
        """Channels and side of the images; of a small network, the largest side that fits."""
        model, edge = self.model, self.images.shorter_edge
        if model and model.vae and model.shape is None:
            if self.side is None:
                found = f"--side: the model in {model.folder} takes latents of any size"
                raise OcmError(f"{found}; give the side of the images")
            return int(model.vae.get("in_channels", 3)), self.side
        if model is None or model.shape is None:
            fitting = max([side for side in SIDES if side <= edge], default=SIDES[0])
            return 1 if self.images.grey else 3, self.side or fitting
        channels, rows, columns = model.shape
        if rows != columns:
            raise OcmError(f"{model.folder}: takes {rows}×{columns}; expected a square")
        if model.vae is not None:
            channels = int(model.vae.get("in_channels", 3))
            with reading(model.folder / "vae/config.json", "an autoencoder", "save it again"):
                rows *= downsampling(dict(model.vae))
        if self.side not in (None, rows):
            raise OcmError(f"--side {self.side}: the model in {model.folder} takes {rows}×{rows}")
        if channels not in (1, 3):
            raise OcmError(f"{model.folder}: takes {channels} channels; expected 1 or 3")
        return channels, rows

    def treatment(self) -> Iterator[str]:
        """Say what is done to the images."""
        channels, side = self.shape
        if not self.images.all_are(side):
            yield f"each becomes {side}×{side}: the shorter edge is scaled, the centre cut out"
        if self.images.grey != (channels == 1):
            change = "grey becomes colour" if self.images.grey else "colour becomes grey"
            yield f"{change}, as the model takes it"
        if self.model and self.model.classes is not None:
            numbered = [f"{n}: {name}" for n, name in enumerate(self.images.folders)]
            yield f"classes, by sub-folder: {', '.join(numbered[:4] + ['…'] * (len(numbered) > 4))}"


def text(start: Start, sizes: Mapping[str, Any] = {}, hours: Mapping[str, str] = {}) -> str:
    """Return the overlay as YAML, with sizes by dotted key, and hours by group as comments."""
    return "\n".join(_lines(start, sizes, hours)) + "\n"


def _lines(start: Start, sizes: Mapping[str, Any], hours: Mapping[str, str]) -> Iterator[str]:
    (channels, side), model = start.shape, start.model
    yield "# @package _global_"
    yield f"# Written by `ocm init`; `ocm params {start.name}` shows every parameter there is."
    yield f"# Run it: snakemake --cores 2 reports/{start.name}.html"
    yield f"defaults: [/base: images{'' if model else ', /network: small_unet'}]"
    yield "data:"
    yield f"  path: {_path(start.images.path)}"
    yield f"  side: {side}"
    yield f"  channels: {channels}"
    fit = "none" if start.images.all_are(side) else "center_crop"
    yield f"  fit: {fit} # or center_crop, resize, none"
    if model and model.classes is not None:
        yield "  labels: folders # numbered in the order of their names; or csv, and labels_csv"
        yield f"  classes: {len(start.images.folders)}"
    if start.captions:
        yield f"  captions_csv: {_path(start.captions)}"
    if start.captions and model and model.text:
        yield "  labels: captions # a label is the number of a caption, in the order of the texts"
        yield f"  classes: {start.distinct_captions}"
    yield "  test_share: 0.1 # kept for the likelihood"
    if model:
        folder = _path(model.folder)
        if model.vae:
            yield f"encode: {{ latent: {{ vae: {{ origin: folder, path: {folder} }} }} }}"
        yield "schedule: { kind: model }"
        yield f"network: {{ family: diffusers, path: {folder} }}"
        yield f"head: {{ kind: {'adaln' if 'Transformer' in model.kind else 'simple'} }}"
    elif channels != 3:
        yield f"network: {{ config: {{ in_channels: {channels} }} }}"
    if model and model.learns_variance:
        options = "{ source: network, lower_end: timesteps }"
        yield f"methods: {{ iddpm: {options} }} # the variance that the model learned"
    for group, values in _tree(start, sizes).items():
        yield f"{group}:{f' # {hours[group]}' if group in hours else ''}"
        yield from (f"  {key}: {_flow(value)}" for key, value in values.items())
    network = f"a {model.kind}" if model else "a small UNet trained here"
    summary = f"{len(start.images.names)} images of {start.images.path.name}, and {network}."
    yield f"report:\n  title: {_flow(start.name)}\n  summary: {_flow(summary)}"


def _tree(start: Start, sizes: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the sizes by group, and null for what latents and models do without."""
    tree: dict[str, dict[str, Any]] = {"train": {}, "sample": {}, "evaluate": {}}
    if start.shape[1] <= TINY:
        tree["features"] = {"space": "efficientnet_lite0_small"}
    if start.model:
        tree["train"]["score"] = None
    if start.model and start.model.vae:
        tree["sample"]["clip"] = {"x0": None, "covariance": None}
        tree["sample"]["samplers"] = {s: {"clip_final_sigma": None} for s in ("ddpm", "ddim")}
        tree["train"]["timesteps"] = None
        tree["evaluate"]["likelihood"] = None
    for key, value in sizes.items():
        *groups, last = key.split(".")
        inner: dict[str, Any] = tree
        for group in groups:
            inner = inner.setdefault(group, {})
        inner[last] = value
    return {group: values for group, values in tree.items() if values}


def _flow(value: Any) -> str:
    """Return a mapping on one line, `{ batch_size: 32 }`; strings are JSON, which YAML reads."""
    if not isinstance(value, Mapping):
        return json.dumps(value, ensure_ascii=False)
    return f"{{ {', '.join(f'{key}: {_flow(inner)}' for key, inner in value.items())} }}"


def _path(path: Path) -> str:
    """Return a path relative to the project if it lies inside, else absolute."""
    whole, here = path.expanduser().resolve(), Path.cwd().resolve()
    return _flow(str(whole.relative_to(here) if whole.is_relative_to(here) else whole))
