"""Choose batch sizes that fit this machine, and no more images than there are."""

from __future__ import annotations

import os
from typing import Any

from ocm_core.doctor.pace import network_size
from ocm_core.schema.experiment import Experiment

SHARE = 0.25  # of the memory, for one job; several run side by side
KEPT = 3  # times the outputs of all layers: kept for the gradient, their gradients, and the heads'


def fitting_sizes(experiment: Experiment, device: str) -> dict[str, Any]:
    """Return parameters by dotted key, as they are written into the overlay."""
    splits, train = experiment.data.count_items(), experiment.train
    activations = max(1, network_size(experiment, "score").activations)
    fits = int(SHARE * _memory(device) / activations)
    most = min(fits // KEPT, splits["train"])
    sizes = {
        "train.heads.batch_size": min(train.heads.batch_size, most),
        "sample.batch_size": min(experiment.sample.batch_size, fits),
    }
    if train.score and "trained" in experiment.network.scores:
        sizes["train.score.batch_size"] = min(train.score.batch_size, most)
    if train.timesteps:
        sizes["train.timesteps.images"] = min(train.timesteps.images, splits["train"])
    deviation: Any = experiment.evaluate.get("posterior_std")
    if deviation:
        sizes["evaluate.posterior_std.images"] = min(deviation.images, splits["test"])
    return {key: max(1, _round(size)) for key, size in sizes.items()}


def _memory(device: str) -> int:
    if device != "cuda":
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    import torch

    return int(torch.cuda.get_device_properties(0).total_memory)


def _round(size: int) -> int:
    """Round down to a power of two, unless the number is small or round already."""
    return size if size < 8 or size % 10 == 0 else 2 ** (size.bit_length() - 1)
