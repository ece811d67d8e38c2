"""What is asked for, and a model that is ready to give it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from ocm_core.artifacts.images import Decode
from ocm_core.pipeline.job import Device
from ocm_core.samplers.ancestral import Watcher
from ocm_core.store.writer import ShardValues


@dataclass(frozen=True)
class Wish:
    """None leaves a choice to the experiment or the model."""

    method: str
    steps: int
    seed: int = 0
    sampler: str | None = None
    score: str | None = None
    guidance: float = 1.0
    label: int | None = None
    device: Device = "auto"
    threads: int = 1


def decoded_as_it_is(x: Tensor) -> Tensor:
    return x


@dataclass(frozen=True)
class Source:
    """Sample i is a function of i and of what `attributes` says, which the store keeps."""

    name: str  # of the files
    shape: tuple[int, ...]  # of what is diffused
    image_shape: tuple[int, ...] | None  # None: points
    levels: int  # grey levels of the images
    to_images: Decode
    labelled: bool
    steps: int
    batch_size: int
    draw: Callable[[range, Watcher], ShardValues]  # `x`, and `label` where there are classes
    attributes: Mapping[str, Any]
