"""List what an experiment sets apart from the defaults, for its page."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ocm_core.io.yaml_files import read_yaml
from ocm_core.params.compose import overlay, preset_file, split_name


def choices(name: str) -> list[str]:
    """Return `as digits`, `base: paper`, `sample.count = 150`, in the order of the files."""
    experiment, presets = split_name(name)
    trees = [read_yaml(overlay(experiment)), *(read_yaml(preset_file(p)) for p in presets)]
    lines = [line for tree in trees for line in _lines(tree, "") if not line.startswith("report.")]
    return [f"as {experiment}", *lines] if presets else lines


def _lines(tree: dict[str, Any], above: str) -> Iterator[str]:
    for entry in tree.get("defaults", ()):
        pairs = entry.items() if isinstance(entry, dict) else [("as", entry)]
        yield from (f"{key.rpartition('/')[2]}: {value}" for key, value in pairs)
    for key, value in tree.items():
        if isinstance(value, dict) and value:
            yield from _lines(value, f"{above}{key}.")
        elif key != "defaults":
            yield f"{above}{key} = {value}"
