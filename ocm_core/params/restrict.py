"""Show a stage only what it declares: an undeclared read would go unnoticed by both tools."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from ocm_core.schema.block import Params
from ocm_core.schema.experiment import Experiment


def values(experiment: Experiment, keys: Collection[str]) -> dict[str, Any]:
    """Return the values behind dotted keys, as plain JSON."""
    tree = experiment.model_dump(mode="json")
    return {key: _lookup(tree, key) for key in sorted(keys)}


def _lookup(tree: Any, key: str) -> Any:
    for name in key.split("."):
        tree = tree[name]
    return tree


def restrict(experiment: Experiment, keys: Collection[str], stage: str) -> Experiment:
    """Return the experiment without the keys that `stage` does not declare; reading one raises."""
    restricted: Experiment = _narrow(experiment, {"name", *keys}, stage, "")
    return restricted


def _narrow(node: Any, keys: Collection[str], stage: str, path: str) -> Any:
    children = (
        node if isinstance(node, dict) else {name: getattr(node, name) for name in _names(node)}
    )
    kept = {}
    for name, child in children.items():
        dotted = f"{path}{name}"
        if dotted in keys:
            kept[name] = child
        elif any(key.startswith(f"{dotted}.") for key in keys):
            kept[name] = _narrow(child, keys, stage, f"{dotted}.")
    if isinstance(node, dict):
        return kept
    block = type(node).model_construct(**kept)
    for name in block.__dict__.keys() - kept.keys():
        del block.__dict__[name]  # a default would hide that the key is not declared
    block._withheld = {
        name: f"stage {stage!r} reads {path}{name} without declaring it: add the key to "
        f"`reads` in ocm_core/stages/{stage}.py"
        for name in _names(node)
        if name not in kept
    }
    for name in block._withheld:
        vars(block).pop(name, None)  # where the schema has a default, that would be read instead
    return block


def _names(block: Params) -> list[str]:
    return [*type(block).model_fields, *(block.model_extra or {})]
