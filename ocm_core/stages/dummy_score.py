"""Write a checkpoint with random weights in the layout of the published file, for smoke runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ocm_core.pipeline.artifacts import Artifact
from ocm_core.pipeline.stage import Stage
from ocm_core.schema.block import Params, require
from ocm_core.stages._networks import family_modules, published_params

if TYPE_CHECKING:
    from torch import nn

    from ocm_core.pipeline.job import Job
    from ocm_core.schema.experiment import Experiment

SEED = 0
_SPREAD = 0.05


def _parts(experiment: Experiment) -> list[str]:
    checkpoint = experiment.network.checkpoint
    return ["all"] if checkpoint is not None and checkpoint.origin == "generated" else []


STAGE: Stage[Params] = Stage(
    __name__,
    "fetch",
    parts=_parts,
    reads=("network",),
    plugins=lambda experiment, part: family_modules(experiment),
)


class DummyScore(Artifact):
    """A folder with the checkpoint under its published file name."""


def run(job: Job) -> None:
    import torch

    from ocm_core.checkpoints.registry import checkpoint_named, nested
    from ocm_core.networks import build
    from ocm_core.networks.keys import export_published
    from ocm_core.rng.streams import seed_torch

    network = published_params(job.experiment)
    choice = require(network.checkpoint)
    source = checkpoint_named(choice.name).source(choice.file)
    seed_torch(SEED)
    state = export_published(_redrawn(build(network.family, network.config)))
    torch.save(nested(source.layout, state), job.folder / source.file)
    job.note(file=source.file, layout=source.layout)


def _redrawn(network: nn.Module) -> nn.Module:
    """Draw the layers that start at zero, which would make every output zero."""
    from torch import nn

    for parameter in network.parameters():
        if not parameter.any():
            nn.init.normal_(parameter, std=_SPREAD)
    return network
