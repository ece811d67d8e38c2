"""Show a stage only what it declares: an undeclared read would go unnoticed by both tools."""

from __future__ import annotations

from collections.abc import Collection
from functools import reduce
from typing import Any

from ocm_core.schema.experiment import Experiment


def values(experiment: Experiment, keys: Collection[str]) -> dict[str, Any]:
    """Return the values behind dotted keys, as plain JSON."""
    tree: Any = experiment.model_dump(mode="json")
    return {
        key: reduce(lambda node, name: node[name], key.split("."), tree) for key in sorted(keys)
    }


def restrict(experiment: Experiment, keys: Collection[str], stage: str) -> Experiment:
    """Return the experiment without the keys that `stage` does not declare; reading one raises."""
    restricted: Experiment = _narrow(experiment, {"name", *keys}, stage, "")
    return restricted


def _narrow(node: Any, keys: Collection[str], stage: str, path: str) -> Any:
    is_block = not isinstance(node, dict)
    names = [*type(node).model_fields, *(node.model_extra or {})] if is_block else [*node]
    kept = {}
    for name in names:
        child, dotted = getattr(node, name) if is_block else node[name], f"{path}{name}"
        if dotted in keys:
            kept[name] = child
        elif any(key.startswith(f"{dotted}.") for key in keys):
            kept[name] = _narrow(child, keys, stage, f"{dotted}.")
    if not is_block:
        return kept
    block = type(node).model_construct(**kept)
    block._withheld = {
        name: f"stage {stage!r} reads {path}{name} without declaring it: add the key to "
        f"`reads` in ocm_core/stages/{stage}.py"
        for name in names
        if name not in kept
    }
    for name in block._withheld:
        vars(block).pop(name, None)  # a default would hide that the key is not declared
    return block
