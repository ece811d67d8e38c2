"""Changes of an experiment by key: presets, and overrides of the command line.

A preset is a file of `params/preset/` with `key: value`. A key may have `*` for any name or number,
and is passed over where the experiment does not have it. A value may be a change of the old one:
`{divide: 5}`, `{at_most: 8}`, `{first: 3}`, `{replace: {old: new}}`; null stays null then.
`only: {key: value}` says which experiments a preset is for.
"""

import re
from collections.abc import Callable, Iterator
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

    def apply(self, tree: Any, full: Any) -> None:
        """Change a tree of parameters; `full` has defaults, too, and so says which keys exist."""
        known = dict(flat(tree)) | dict(flat(full))
        if self.key not in known and not self.adds:
            near, above = get_close_matches(self.key, known, n=1), self.key.rpartition(".")[0]
            beside = {key for key in known if key.rpartition(".")[0] == above}
            raise OcmError(f"{self.source}: key {unknown(self.key, {*near, *beside})}")
        *names, last = self.key.split(".")
        for name in names:  # defaults are written out on the way
            at, full = self._position(tree, name), _children(full).get(name)
            if not _children(_children(tree).get(name)):
                tree[at] = deepcopy(full) if _children(full) else {}
            tree = tree[at]
        at = self._position(tree, last)
        if not self.removes:
            old, value = known.get(self.key), self.value
            change = next(iter(value), "") if isinstance(value, dict) else ""
            if change in _CHANGES:
                value = None if old is None else _CHANGES[change](old, value[change])
            tree[at] = value
        elif isinstance(tree, list) or at in tree:
            del tree[at]

    def _position(self, block: Any, name: str) -> Any:
        if not isinstance(block, list):
            return name
        if not name.isdecimal() or int(name) >= len(block):
            expected = f"expected a position in a list of {len(block)} values"
            raise OcmError(f"{self.source}: key {name!r}: {expected}")
        return int(name)


def preset_edits(file: Path, full: Tree) -> list[Edit]:
    """Return what a preset changes of the experiment `full`; keys that it does not have are not."""
    values = read_yaml(file)
    for pattern, suited in values.pop("only", {}).items():
        for key, found in matching(full, pattern).items():
            if found != suited:
                raise OcmError(f"{file}: for experiments with {key} = {suited}, not {found}")
    pairs = [(key, value) for pattern, value in values.items() for key in matching(full, pattern)]
    return [Edit(file, key, value) for key, value in pairs]


def parse(override: str) -> Edit:
    """Read one override in Hydra's grammar; a value replaces what was there."""
    source = f"override {shortened(override, LONGEST_NAME)!r}"
    if len(override) > LONGEST_OVERRIDE:
        raise OcmError(f"{source}: longer than {LONGEST_OVERRIDE} characters")
    if "=" not in override and not override.startswith("~"):
        raise OcmError(f"{source}: expected key=value")
    try:
        parsed: Override = OverridesParser.create().parse_override(override)
        value = parsed.value()
    except HydraException as error:
        raise OcmError(f"{source}: {' '.join(str(error).split())}") from None
    adds = parsed.is_add() or parsed.is_force_add()
    return Edit(source, parsed.key_or_group, value, adds, parsed.is_delete())


def matching(full: Tree, pattern: str) -> Tree:
    """Return the keys that a pattern with `*` stands for, with their values."""
    names = re.compile(re.escape(pattern).replace(r"\*", r"[^.]+"))
    return {key: value for key, value in flat(full) if names.fullmatch(key)}


def flat(node: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every key as it is typed, with its value; positions in lists are keys, too."""
    for name, child in _children(node).items():
        yield f"{prefix}{name}", child
        yield from flat(child, f"{prefix}{name}.")


def _children(node: Any) -> Tree:
    pairs: Any = enumerate(node) if isinstance(node, list) else getattr(node, "items", tuple)()
    return {str(name): child for name, child in pairs}
