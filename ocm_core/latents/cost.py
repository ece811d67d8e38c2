"""What encoding a data set will take: bytes, shards, jobs and hours of a GPU, before it begins.

hours = items · FLOPs per image / (peak · utilisation) / 3600, with the encoder's FLOPs counted on
tensors without storage; peak and utilisation are for the caller to state.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from ocm_core.data.plan import DType, Plan, ranges
from ocm_core.latents.autoencoder import downsampling, new_autoencoder
from ocm_core.latents.encoding import Posterior

A100_BFLOAT16 = 312e12  # FLOP/s, NVIDIA's data sheet, dense


@dataclass(frozen=True)
class EncodingCost:
    items: int
    bytes: int
    shards: int
    jobs: int
    images_per_second: float
    gpu_hours: float

    def __str__(self) -> str:
        return (
            f"{self.items:,} latents, {self.bytes / 1e9:.1f} GB in {self.shards} shards, "
            f"{self.jobs} jobs of {self.gpu_hours / self.jobs:.2f} GPU hours each at "
            f"{self.images_per_second:,.0f} images/s"
        )


def encoder_flops(config: Mapping[str, Any], image: tuple[int, int, int]) -> int:
    """Of one image (channels, height, width), a multiplication and an addition counted as two."""
    with torch.device("meta"), torch.no_grad():
        model = new_autoencoder(config, "the autoencoder's configuration")
        with FlopCounterMode(display=False) as counter:
            model.encode(torch.empty(1, *image))
    return int(counter.get_total_flops())


def throughput(flops: int, *, peak: float, utilisation: float) -> float:
    """Images per second of a GPU that reaches the given share of its peak."""
    return peak * utilisation / flops


def encoding_cost(
    config: Mapping[str, Any],
    image: tuple[int, int, int],
    images: int,
    *,
    flips: bool,
    posterior: Posterior,
    dtype: DType,
    labelled: bool,
    chunk: int,
    shard: int,
    jobs: int,
    images_per_second: float,
) -> EncodingCost:
    """Bytes are exact: those that the stores will have, but for a few kB of metadata."""
    factor = downsampling(config)
    shape = (config["latent_channels"], image[1] // factor, image[2] // factor)
    items = images * (2 if flips else 1)
    plans = [
        Plan(
            items=part,
            shape=shape,
            dtype=dtype,
            labelled=labelled,
            spread=posterior == "keep",
            chunk=chunk,
            shard=shard,
        )
        for part in ranges(items, jobs, shard)
    ]
    return EncodingCost(
        items=items,
        bytes=sum(plan.bytes_of(plan.shards) for plan in plans),
        shards=sum(len(plan.shards) for plan in plans),
        jobs=jobs,
        images_per_second=images_per_second,
        gpu_hours=items / images_per_second / 3600,
    )
