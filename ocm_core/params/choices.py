"""What an experiment sets apart from the defaults, in words for its page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ocm_core.params.document import read_yaml
from ocm_core.params.resolved import overlay

_OVERRIDE = "override /"
_NO_PARAMETERS = ("defaults", "report")  # what is not a choice, or not of the numbers


def choices(name: str) -> list[str]:
    """`as digits`, `data: mnist`, `sample.count = 150`, in the order of the overlay.

    A resolved file that was put there without an overlay has no choices to tell.
    """
    if not overlay(name).exists():
        return []
    tree = read_yaml(overlay(name))
    own = {key: value for key, value in tree.items() if key not in _NO_PARAMETERS}
    return [*_groups(tree.get("defaults") or ()), *_leaves(own)]


def _groups(entries: Any) -> Iterator[str]:
    for entry in entries:
        if isinstance(entry, Mapping):
            yield from (f"{k.removeprefix(_OVERRIDE)}: {file}" for k, file in entry.items())
        else:
            yield f"as {entry}"


def _leaves(tree: Mapping[str, Any], above: str = "") -> Iterator[str]:
    for key, value in tree.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{above}{key}.")
        else:
            yield f"{above}{key} = {value}"
