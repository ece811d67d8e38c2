"""Changes of an experiment by key: presets, and overrides of the command line.

A preset is a file of `params/preset/` with `key: value`. A key may have `*` for any name or number,
and is passed over where the experiment does not have it. A value may be a change of the old one:
`{divide: 5}`, `{at_most: 8}`, `{first: 3}`, `{replace: {old: new}}`; null stays null then.
`only: {key: value}` says which experiments a preset is for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException

from ocm_core.errors import LONGEST_NAME, OcmError, shortened, unknown
from ocm_core.io.yaml_files import read_yaml
from ocm_core.params.document import Tree

LONGEST_OVERRIDE = 2000  # characters; Hydra's grammar takes seconds for more
Place = tuple[str | int, ...]
_CHANGES: dict[str, Callable[[Any, Any], Any]] = {
    "divide": lambda old, by: max(1, old // by),
    "at_most": min,
    "first": lambda old, count: old[:count],
    "replace": lambda old, by: by.get(old, old),
}


@dataclass(frozen=True)
class Edit:
    """A value for a key, or its removal, and the file or override that asks for it."""

    source: object
    key: str
    value: Any = None
    adds: bool = False  # a key that need not exist
    removes: bool = False


def preset_edits(file: Path, full: Tree) -> list[Edit]:
    """Return what a preset changes of the experiment `full`; keys that it does not have are not."""
    values = read_yaml(file)
    for key, suited in values.pop("only", {}).items():
        for place in _places(full, key.split(".")):
            if (found := _value(full, place)) != suited:
                raise OcmError(f"{file}: for experiments with {key} = {suited}, not {found}")
    return [
        Edit(file, ".".join(map(str, place)), value)
        for key, value in values.items()
        for place in _places(full, key.split("."))
    ]


def parse(override: str) -> Edit:
    """Read one override in Hydra's grammar; a value replaces what was there."""
    if len(override) > LONGEST_OVERRIDE:
        shown = shortened(override, LONGEST_NAME)
        raise OcmError(f"override {shown!r}: longer than {LONGEST_OVERRIDE} characters")
    if "=" not in override and not override.startswith("~"):
        raise OcmError(f"override {override!r}: expected key=value")
    try:
        parsed: Override = OverridesParser.create().parse_override(override)
        value = parsed.value()
    except HydraException as error:
        raise OcmError(f"override {override!r}: {' '.join(str(error).split())}") from None
    adds = parsed.is_add() or parsed.is_force_add()
    return Edit(f"override {override!r}", parsed.key_or_group, value, adds, parsed.is_delete())


def apply(edits: Sequence[Edit], tree: Tree, full: Tree) -> None:
    """Change the tree of parameters; `full` has the defaults, too, and so says which keys exist."""
    problems = []
    for edit in edits:
        names = edit.key.split(".")
        asked = [tuple(names)] if edit.adds else []
        place, *_ = [*_places(full, names), *_places(tree, names), *asked, ()]
        if not place:
            problems.append(f"{edit.source}: key {_nearest(edit.key, {*_keys(full)})}")
        elif edit.removes:
            _block(tree, full, place).pop(place[-1], None)
        else:
            new = _changed(_value(full, place), edit.value)
            _block(tree, full, place)[place[-1]] = new
    if problems:
        raise OcmError("\n".join(problems))


def _changed(old: Any, value: Any) -> Any:
    name, argument = next(iter(value.items()), ("", None)) if isinstance(value, dict) else ("", 0)
    if name not in _CHANGES:
        return value
    return None if old is None else _CHANGES[name](old, argument)


def _children(node: Any) -> dict[str | int, Any]:
    if isinstance(node, list):
        return dict(enumerate(node))
    return node if isinstance(node, dict) else {}


def _places(node: Any, names: Sequence[str]) -> Iterator[Place]:
    """Yield every place of the tree that a key with `*` stands for."""
    first, *rest = names
    for name, child in _children(node).items():
        if first in ("*", str(name)):
            yield from ((name, *place) for place in _places(child, rest)) if rest else [(name,)]


def _value(node: Any, place: Place) -> Any:
    for name in place:
        node = _children(node).get(name)
    return node


def _block(tree: Any, full: Any, place: Place) -> Any:
    """Return the block of a tree that holds a place; defaults are written out on the way."""
    for name in place[:-1]:
        full = _children(full).get(name)
        if name not in _children(tree) or not _children(tree[name]):
            tree[name] = deepcopy(full) if _children(full) else {}
        tree = tree[name]
    return tree


def _keys(tree: Tree, prefix: str = "") -> Iterator[str]:
    """Yield every key of the tree as it is typed."""
    for key, value in tree.items():
        yield f"{prefix}{key}"
        if isinstance(value, dict):
            yield from _keys(value, f"{prefix}{key}.")


def _nearest(key: str, valid: set[str]) -> str:
    """Say that a key is unknown; listed are the nearest, and those of its block."""
    beside = {other for other in valid if other.rpartition(".")[0] == key.rpartition(".")[0]}
    return unknown(key, beside | set(get_close_matches(key, valid, n=1)))
