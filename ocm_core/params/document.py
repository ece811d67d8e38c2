"""From a plain tree to a validated experiment; all problems of a file in one error, a line each."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from ocm_core.errors import OcmError, unknown
from ocm_core.schema.experiment import Experiment

Tree = dict[str, Any]
Location = tuple[int | str, ...]


def read_yaml(file: Path) -> Tree:
    try:
        tree = yaml.safe_load(file.read_text())
    except FileNotFoundError:
        raise OcmError(
            f"{file}: no such file; `ocm params --write` makes the generated ones"
        ) from None
    except yaml.YAMLError as error:
        raise OcmError(f"{file}: not valid YAML: {' '.join(str(error).split())}") from None
    if not isinstance(tree, dict):
        raise OcmError(f"{file}: expected a mapping of parameters, found {type(tree).__name__}")
    return tree


def validate(tree: Tree, file: Path) -> Experiment:
    try:
        return Experiment.model_validate(tree)
    except ValidationError as error:
        details = error.errors(include_url=False)
        wrong = {detail["loc"] for detail in details if detail["type"] == "extra_forbidden"}
        lines = [line for detail in details for line in _describe(detail, tree, wrong)]
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
        case "value_error":  # raised by the schema itself, and already begins with the key
            yield from str(detail["ctx"]["error"]).splitlines()
        case _:
            yield f"{key}: {detail['msg']}, found {detail['input']!r}"


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
