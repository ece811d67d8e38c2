"""Write a checkpoint with random weights in the layout of the published file, for smoke runs."""

from typing import cast

import torch
from torch import nn

from ocm_core import networks
from ocm_core.checkpoints.registry import checkpoint_named, nested
from ocm_core.networks.keys import export_published
from ocm_core.rng.streams import seed_torch
from ocm_core.schema.experiment import TrunkNetworkParams
from ocm_core.stages import Artifact, Job, Params, Stage, require
from ocm_core.stages._networks import family_modules

SEED = 0
_SPREAD = 0.05


STAGE: Stage[Params] = Stage(
    __name__,
    "fetch",
    parts=lambda e: ["all"] * (getattr(e.network.checkpoint, "origin", "") == "generated"),
    reads=("network",),
    plugins=family_modules,
)


class DummyScore(Artifact):
    """A folder with the checkpoint under its published file name."""


def run(job: Job) -> None:
    """Draw random weights, and save them as they were published."""
    params = cast(TrunkNetworkParams, job.experiment.network)
    choice = require(params.checkpoint)
    source = checkpoint_named(choice.name).source(choice.file)
    seed_torch(SEED)
    network = networks.build(params.family, params.config)
    for parameter in network.parameters():
        if not parameter.any():  # a layer that starts at zero would make every output zero
            nn.init.normal_(parameter, std=_SPREAD)
    torch.save(nested(source.layout, export_published(network)), job.folder / source.file)
    job.note(file=source.file, layout=source.layout)
