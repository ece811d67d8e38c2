"""Read YAML with care: aliases may stand for millions of values, and 12:30 is a number."""

import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any, cast

import yaml
from omegaconf import OmegaConf

from ocm_core.errors import OcmError
from ocm_core.io.reading import reading

RESTORE = "correct it, or restore it from git"
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
MOST_BYTES, MOST_VALUES = 1 << 20, 10_000  # the largest of ours have 10,000 bytes, 600 values


def read_yaml(file: Path, above: str = "") -> dict[str, Any]:
    """Return a file's mapping of values; messages name keys after the block `above`."""
    if not file.is_file():
        raise OcmError(f"{file}: no such file")
    node = parse_yaml(file)
    if not isinstance(node, yaml.MappingNode):
        kind = {yaml.SequenceNode: "a list", yaml.ScalarNode: "a value"}.get(type(node), "nothing")
        raise OcmError(f"{file}: expected a mapping of parameters, found {kind}")
    if problems := list(_problems(node, above)):
        raise OcmError("\n".join(f"{file}: {problem}" for problem in problems))
    with reading(file, "valid YAML", RESTORE):
        return cast(dict[str, Any], OmegaConf.to_container(OmegaConf.load(file)))


def parse_yaml(file: Path) -> yaml.Node | None:
    """Parse a file, and refuse it before a few aliases become millions of values."""
    with reading(file, f"valid YAML of at most {MOST_VALUES} values", RESTORE):
        if (size := file.stat().st_size) > MOST_BYTES:
            raise ValueError(f"{size} bytes, more than {MOST_BYTES}")
        node: yaml.Node | None = yaml.compose(file.read_text(encoding="utf-8"), LOADER)
        if (values := _count(node, {})) > MOST_VALUES:
            raise ValueError(f"{values} values, with its aliases written out")
    return node


def _count(node: yaml.Node | None, counted: dict[int, int]) -> int:
    """Count the values of a tree in which the nodes that aliases stand for are shared."""
    if node is None or isinstance(node, yaml.ScalarNode):
        return 1
    if id(node) not in counted:
        counted[id(node)] = MOST_VALUES + 1  # of one that holds itself
        pairs = isinstance(node, yaml.MappingNode)
        parts = chain.from_iterable(node.value) if pairs else node.value
        counted[id(node)] = 1 + sum(_count(part, counted) for part in parts)
    return counted[id(node)]


def _problems(node: yaml.Node, key: str) -> Iterator[str]:
    """Yield what Hydra would pass over, and numbers that YAML reads in another base."""
    if isinstance(node, yaml.MappingNode):
        for name, value in node.value:
            yield from _problems(value, f"{key}.{name.value}".lstrip("."))
    elif isinstance(node, yaml.SequenceNode):
        for number, value in enumerate(node.value):
            yield from _problems(value, f"{key}.{number}")
    elif node.value == "???":
        yield f"{key}: '???' is no value; give one, or leave the key out"
    elif node.tag.endswith((":int", ":float")) and re.search(r":|^[-+]?0\d", node.value):
        yield f"{key}: expected a decimal number, found {node.value}"
