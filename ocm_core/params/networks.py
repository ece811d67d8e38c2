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

from ocm_core.checkpoints.registry import checkpoint_named
from ocm_core.errors import OcmError
from ocm_core.networks import configuration
from ocm_core.params.document import Tree


def complete(tree: Tree, file: Path) -> Tree:
    """Fill in what the registry knows, and the defaults of the family's configuration."""
    network = dict(tree["network"])
    if "config" not in network:
        return network  # a family without a configuration of its own
    try:
        if network["checkpoint"]:
            network = _with_published(network, tree["schedule"])
        network["config"] = configuration(network["family"], network["config"])
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
