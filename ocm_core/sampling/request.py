"""A request for samples, and a model that is ready to generate them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ocm_core.pipeline.job import Device
from ocm_core.sampling.recipe import Watcher
from ocm_core.schema.timesteps import TimestepsParams
from ocm_core.stages._images import Decode
from ocm_core.store.writer import ShardValues

MOST = 40  # characters of a prompt in the name of a file


@dataclass(frozen=True)
class SampleRequest:
    """The options of `ocm sample`; None leaves a choice to the experiment or the model."""

    method: str | None
    steps: int
    seed: int = 0
    sampler: str | None = None
    preset: str | None = None
    order: int | None = None
    timesteps: TimestepsParams | None = None
    score: str | None = None
    guidance: float = 1.0
    label: int | None = None
    prompt: str | None = None
    device: Device = "auto"
    threads: int = 1

    @property
    def suffix(self) -> str:
        """Return the end of the files' names."""
        order = "" if self.order is None else f"-order{self.order}"
        timesteps = "" if self.timesteps is None else _in_a_name(self.timesteps)
        label = "" if self.label is None else f"-label{self.label}"
        prompt = "" if self.prompt is None else "-" + "-".join(_words(self.prompt))[:MOST]
        return f"{order}{timesteps}-seed{self.seed}{label}{prompt}"


def _in_a_name(timesteps: TimestepsParams) -> str:
    """Return, for example, `-power-2.0-10`."""
    words = _words(str([*timesteps.model_dump(exclude_none=True).values()]))
    return "".join(f"-{word}" for word in words)


def _words(text: str) -> list[str]:
    return re.findall(r"[\w.]+", text)


@dataclass(frozen=True)
class SampleGenerator:
    """A model with a recipe; `attributes` are all that a sample depends on beside its index."""

    name: str  # of the files
    shape: tuple[int, ...]  # of a sample: a point, an image or latents
    image_shape: tuple[int, ...] | None  # None: samples are points and no images
    levels: int  # grey levels of the images
    to_images: Decode
    labelled: bool  # the model is conditional on classes
    steps: int
    batch_size: int
    draw: Callable[[range, Watcher], ShardValues]  # `x`, and `label` if labelled
    attributes: Mapping[str, Any]
