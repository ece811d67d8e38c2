"""What a network's parameters leave to others: the registry of checkpoints, and its own family.

An experiment on a published checkpoint names it; family, configuration and time convention then
come from the registry, and what the experiment says itself is laid over them. As in `methods`,
torch is imported here, so this is used when an experiment is composed and not to build a graph.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from ocm_core.checkpoints.registry import checkpoint_named
from ocm_core.errors import OcmError
from ocm_core.networks import configuration
from ocm_core.params import models
from ocm_core.params.document import Tree


class NamedCheckpoint(BaseModel):
    """A published checkpoint, by its name in the registry."""

    model_config = ConfigDict(strict=True)

    name: str


class NetworkDraft(BaseModel):
    """What must be known of a network before it can be completed."""

    model_config = ConfigDict(strict=True)

    family: str | None = None
    config: dict[str, Any] = {}
    checkpoint: NamedCheckpoint | None = None


def complete(tree: Tree, file: Path) -> Tree:
    """Fill in what the registry knows, and the defaults of the family's configuration."""
    network = dict(tree["network"])
    if "config" not in network or network.get("family") == models.FAMILY:
        return network  # a family without a configuration of its own, or with the model's
    try:
        if network.get("checkpoint"):
            network = _with_published(network, tree.get("schedule", {}))
        network["config"] = configuration(str(network.get("family")), network["config"])
    except OcmError as error:
        raise OcmError(f"{file}: network: {error}") from None
    return network


def _with_published(network: Tree, schedule: Mapping[str, Any]) -> Tree:
    entry = checkpoint_named(network["checkpoint"]["name"])
    trained = {"kind": entry.schedule, "steps": entry.steps}
    if dict(schedule) != trained:
        raise OcmError(f"{entry.name} was trained with schedule {trained}, found {dict(schedule)}")
    own = {key: value for key, value in network.items() if value is not None}
    known = {"family": entry.family, "time": asdict(entry.time)}
    return {**network, **known, **own, "config": {**entry.config, **network["config"]}}
