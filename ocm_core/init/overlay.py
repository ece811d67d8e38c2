"""Write the text of a first experiment: short, with the lines that its owner may want to change."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ocm_core.errors import OcmError
from ocm_core.init.images import CaptionSummary, ImageSummary

if TYPE_CHECKING:
    from ocm_core.checkpoints.diffusers_folder import ModelDescription
    from ocm_core.schema.experiment import Experiment

SIDES = (8, 16, 32)  # of a network that is trained here
HEADS = {"DiTTransformer2DModel": "adaln"}  # else `simple`


@dataclass(frozen=True)
class Start:
    """The images, the model and the wishes that an experiment begins with."""

    name: str
    images: ImageSummary
    model: ModelDescription | None = None
    captions: CaptionSummary | None = None
    side: int | None = None  # asked for; None: the model's, or what suits a small network
    sizes: Mapping[str, Any] = field(default_factory=dict)  # by dotted key, and lists of methods
    hours: Mapping[str, str] = field(default_factory=dict)  # by group, as a comment

    @property
    def latent(self) -> bool:
        return self.model is not None and self.model.vae is not None

    @property
    def shape(self) -> tuple[int, int]:
        """Channels and side of the images."""
        model, grey = self.model, 1 if self.images.grey else 3
        if model is None or model.shape is None:
            return grey, self.side or _side(self.images.shorter_edge)
        channels, rows, columns = model.shape
        if rows != columns:
            raise OcmError(f"{model.folder}: takes {rows}×{columns}; expected a square")
        if model.vae is not None:
            channels = int(model.vae.get("in_channels", 3))
            rows *= 2 ** (len(model.vae["block_out_channels"]) - 1)
        if self.side not in (None, rows):
            raise OcmError(f"--side {self.side}: the model in {model.folder} takes {rows}×{rows}")
        if channels not in (1, 3):
            raise OcmError(f"{model.folder}: takes {channels} channels; expected 1 or 3")
        return channels, rows

    @property
    def learns_variance(self) -> bool:
        return self.model is not None and self.model.learns_variance

    @property
    def conditional(self) -> bool:
        return self.model is not None and self.model.classes is not None

    def treatment(self) -> Iterator[str]:
        """Say what is done to the images."""
        channels, side = self.shape
        if not self.images.all_are(side):
            yield f"each becomes {side}×{side}: the shorter edge is scaled, the centre cut out"
        if self.images.grey and channels == 3:
            yield "grey becomes colour, as the model takes it"
        elif not self.images.grey and channels == 1:
            yield "colour becomes grey, as the model takes it"
        if self.conditional:
            first = ", ".join(f"{n}: {name}" for n, name in enumerate(self.images.folders[:4]))
            rest = ", …" if len(self.images.folders) > 4 else ""
            yield f"classes, by sub-folder: {first}{rest}"

    @property
    def summary(self) -> str:
        network = f"a {self.model.kind}" if self.model else "a small UNet trained here"
        return f"{self.images.count} images of {self.images.path.name}, and {network}."


def _side(edge: int) -> int:
    """Return the largest side that fits; small images are enlarged to the least."""
    return max([side for side in SIDES if side <= edge], default=SIDES[0])


def with_learned_variance(experiment: Experiment) -> dict[str, list[str]]:
    """Return the methods of DDPM steps by dotted key, with `iddpm` added."""
    blocks: dict[str, Any] = {
        "sample.samplers.ddpm": experiment.sample.samplers["ddpm"],
        "train.timesteps": experiment.train.timesteps,
        "evaluate.likelihood": experiment.evaluate.get("likelihood"),
    }
    return {f"{key}.methods": [*block.methods, "iddpm"] for key, block in blocks.items() if block}


def text(start: Start) -> str:
    """Return the overlay as YAML; strings are JSON, which YAML reads."""
    return "\n".join([*_head(start), *_data(start), *_rest(start)]) + "\n"


def _head(start: Start) -> Iterator[str]:
    yield "# @package _global_"
    yield "# Written by `ocm init`; `ocm params " + start.name + "` shows every parameter there is."
    yield f"# Run it: snakemake --cores 2 reports/{start.name}.html"
    yield f"defaults: [/base: images{'' if start.model else ', /network: small_unet'}]"


def _data(start: Start) -> Iterator[str]:
    channels, side = start.shape
    yield "data:"
    yield f"  path: {_path(start.images.path)}"
    yield f"  side: {side}"
    yield f"  channels: {channels}"
    fit = "none" if start.images.all_are(side) else "center_crop"
    yield f"  fit: {fit} # or center_crop, resize, none"
    if start.conditional:
        yield "  labels: folders # numbered in the order of their names; or csv, and labels_csv"
        yield f"  classes: {len(start.images.folders)}"
    if start.captions:
        yield f"  captions_csv: {_path(start.captions.file)}"
    if start.captions and start.model and start.model.text:
        yield "  labels: captions # a label is the number of a caption, in the order of the texts"
        yield f"  classes: {start.captions.distinct}"
    yield "  test_share: 0.1 # kept for the likelihood"


def _rest(start: Start) -> Iterator[str]:
    if model := start.model:
        folder = _path(model.folder)
        if start.latent:
            yield f"encode: {{ latent: {{ vae: {{ origin: folder, path: {folder} }} }} }}"
        yield "schedule: { kind: model }"
        yield f"network: {{ family: diffusers, path: {folder} }}"
        yield f"head: {{ kind: {HEADS.get(model.kind, 'simple')} }}"
    elif start.shape[0] != 3:
        yield f"network: {{ config: {{ in_channels: {start.shape[0]} }} }}"
    if start.learns_variance:
        options = "{ source: network, lower_end: timesteps }"
        yield f"methods: {{ iddpm: {options} }} # the variance that the model learned"
    for group, values in _tree(start).items():
        yield f"{group}:{_comment(start.hours.get(group))}"
        yield from (f"  {key}: {_flow(value)}" for key, value in values.items())
    yield "report:"
    yield f"  title: {json.dumps(start.name, ensure_ascii=False)}"
    yield f"  summary: {json.dumps(start.summary, ensure_ascii=False)}"


def _tree(start: Start) -> dict[str, dict[str, Any]]:
    """Return the sizes by group, and null for what latents and models do without."""
    tree: dict[str, dict[str, Any]] = {"train": {}, "sample": {}, "evaluate": {}}
    if start.model:
        tree["train"]["score"] = None
    if start.latent:
        tree["sample"]["clip"] = {"x0": None, "covariance": None}
        tree["sample"]["samplers"] = {s: {"clip_final_sigma": None} for s in ("ddpm", "ddim")}
        tree["train"]["timesteps"] = None
        tree["evaluate"]["likelihood"] = None
    for key, value in start.sizes.items():
        _put(tree, key.split("."), value)
    return {group: values for group, values in tree.items() if values}


def _put(tree: dict[str, Any] | None, key: Sequence[str], value: Any) -> None:
    """Set a value, unless a group that it belongs to is left out."""
    first, *rest = key
    if tree is not None and rest:
        _put(tree.setdefault(first, {}), rest, value)
    elif tree is not None:
        tree[first] = value


def _flow(value: Any) -> str:
    """Return a mapping on one line, `{ batch_size: 32 }`."""
    if not isinstance(value, Mapping):
        return json.dumps(value)
    return f"{{ {', '.join(f'{key}: {_flow(inner)}' for key, inner in value.items())} }}"


def _path(path: Path) -> str:
    """Return a path relative to the project if it lies inside, else absolute."""
    whole, here = path.expanduser().resolve(), Path.cwd().resolve()
    inside = whole.relative_to(here) if whole.is_relative_to(here) else whole
    return json.dumps(str(inside), ensure_ascii=False)


def _comment(note: str | None) -> str:
    return f" # {note}" if note else ""
