"""From a plain tree to a validated experiment; all problems of a file in one error, a line each."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from ocm_core.errors import LONGEST_NAME, OcmError, shortened, unknown
from ocm_core.io.reading import reading
from ocm_core.schema.experiment import Experiment

Tree = dict[str, Any]
Location = tuple[int | str, ...]
Model = TypeVar("Model", bound=BaseModel)
RESTORE = "correct it, or restore it from git"
MOST_BYTES, MOST_VALUES = 1 << 20, 10_000  # the largest of ours have 10,000 bytes, 600 values
_EXPECTED = f"valid YAML of at most {MOST_VALUES} values"
SHOWN = 20  # problems in one message


def read_yaml(file: Path) -> Tree:
    if not file.is_file():
        raise OcmError(f"{file}: no such file; `ocm params --write` makes the generated ones")
    return parse_yaml(checked_text(file), file)


def parse_yaml(text: str, where: object) -> Tree:
    with reading(where, _EXPECTED, RESTORE):
        _refuse_many(text)
        tree = yaml.safe_load(text)
    if not isinstance(tree, dict):
        raise OcmError(f"{where}: expected a mapping of parameters, found {type(tree).__name__}")
    return tree


def checked_text(file: Path) -> str:
    """A file of parameters, before YAML makes values of it: a few lines can stand for millions."""
    with reading(file, _EXPECTED, RESTORE):
        if (size := file.stat().st_size) > MOST_BYTES:
            raise ValueError(f"{size} bytes, more than {MOST_BYTES}")
        text = file.read_text(encoding="utf-8")
        _refuse_many(text)
    return text


def _refuse_many(text: str) -> None:
    if (values := _count(text)) > MOST_VALUES:
        raise ValueError(f"{values} values, with its aliases written out")


@lru_cache(maxsize=1000)
def _count(text: str) -> int:
    if "*" in text:
        return _values(yaml.compose(text, yaml.SafeLoader), {})
    return text.count(",") + text.count("\n")  # about so many, where there are no aliases


def _values(node: yaml.Node | None, known: dict[int, int]) -> int:
    """The values of a tree in which the nodes that aliases stand for are shared."""
    if node is None or isinstance(node, yaml.ScalarNode):
        return 1
    if id(node) not in known:
        known[id(node)] = MOST_VALUES + 1  # of one that holds itself
        pairs = isinstance(node, yaml.MappingNode)
        parts = chain.from_iterable(node.value) if pairs else node.value
        known[id(node)] = 1 + sum(_values(part, known) for part in parts)
    return known[id(node)]


def validate(tree: Tree, file: Path) -> Experiment:
    return checked(Experiment, tree, file)


def checked(kind: type[Model], tree: Tree, file: Path) -> Model:
    """The tree as a `kind`, or the first problems of the file, a line each."""
    try:
        return kind.model_validate(tree)
    except ValidationError as error:
        details = error.errors(include_url=False)
        wrong = {detail["loc"] for detail in details if detail["type"] == "extra_forbidden"}
        lines = [line for detail in details[:SHOWN] for line in _describe(detail, tree, wrong)]
        if len(details) > SHOWN:
            lines.append(f"and {len(details) - SHOWN} more")
        raise OcmError("\n".join(f"{file}: {line}" for line in lines)) from None


def _describe(detail: ErrorDetails, tree: Tree, wrong: Collection[Location]) -> Iterator[str]:
    key, parent = _locate(detail["loc"], tree)
    match detail["type"]:
        case "extra_forbidden":
            *above, last = detail["loc"]
            valid = [name for name in parent if (*above, name) not in wrong]
            yield f"{key}: {unknown(last, valid)}"
        case "missing":
            yield f"{key}: missing; expected a value"
        case "literal_error":
            quoted = re.findall(r"'([^']*)'", detail["ctx"]["expected"])
            yield f"{key}: {unknown(detail['input'], quoted)}"
        case "union_tag_invalid":
            tags = re.findall(r"'([^']*)'", detail["ctx"]["expected_tags"])
            named = detail["ctx"]["discriminator"].strip("'")
            yield f"{key}.{named}: {unknown(detail['ctx']['tag'], tags)}"
        case "value_error":  # raised by the schema itself, and already begins with the key
            yield from str(detail["ctx"]["error"]).splitlines()
        case _:
            yield f"{key}: {detail['msg']}, found {shortened(repr(detail['input']), LONGEST_NAME)}"


def _locate(location: Location, tree: Tree) -> tuple[str, Mapping[Any, Any]]:
    """The dotted key (without the tags of unions, which are no keys) and the tree that holds it."""
    names: list[str] = []
    node: Any = tree
    parent: Any = tree
    for depth, name in enumerate(location):
        found = _child(node, name)
        if found is None and depth < len(location) - 1:
            continue
        names.append(str(name))
        parent, node = node, found
    return ".".join(names), parent if isinstance(parent, Mapping) else {}


def _child(node: Any, name: int | str) -> Any:
    if isinstance(node, Mapping):
        return node.get(name)
    if isinstance(node, list) and isinstance(name, int):
        return node[name]
    return None
