"""Write a small checkpoint with random weights, as the authors of the real one would have."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn

from ocm_core.artifacts.score import trunk
from ocm_core.checkpoints.layouts import layout_named
from ocm_core.checkpoints.registry import checkpoint_named
from ocm_core.networks import build
from ocm_core.networks.keys import export_published
from ocm_core.rng.streams import seed_torch
from ocm_core.schema.block import require

if TYPE_CHECKING:
    from ocm_core.pipeline.job import Job

SEED = 0
_SPREAD = 0.05


def run(job: Job) -> None:
    network = trunk(job.experiment)
    choice = require(network.checkpoint)
    source = checkpoint_named(choice.name).source(choice.file)
    seed_torch(SEED)
    state = export_published(_redrawn(build(network.family, network.config)))
    torch.save(layout_named(source.layout).give(state), job.folder / source.file)
    job.note(file=source.file, layout=source.layout)


def _redrawn(network: nn.Module) -> nn.Module:
    """Layers that start at zero would make every output zero."""
    for parameter in network.parameters():
        if not parameter.any():
            nn.init.normal_(parameter, std=_SPREAD)
    return network
