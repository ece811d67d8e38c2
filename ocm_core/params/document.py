"""Word what is wrong with parameters: a line for each problem, which begins with its key."""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from ocm_core.errors import LONGEST_NAME, shortened, unknown

Tree = dict[str, Any]
Model = TypeVar("Model", bound=BaseModel)


def validated(kind: type[Model], tree: Tree, problems: list[str], above: str = "") -> Model | None:
    """Return the tree as a `kind`; if it is none, say why, a line for each problem."""
    try:
        return kind.model_validate(tree)
    except ValidationError as error:
        for detail in error.errors(include_url=False):
            problems += [f"{above}{line}" for line in _describe(detail, tree, kind)]
        return None


def _describe(detail: ErrorDetails, tree: Tree, kind: type[BaseModel]) -> Iterator[str]:
    key, context = _dotted(detail["loc"], tree), detail.get("ctx", {})
    match detail["type"]:
        case "extra_forbidden":
            *above, last = detail["loc"]
            yield f"{key}: {unknown(last, _fields(kind, above))}"
        case "missing":
            yield f"{key}: missing; expected a value"
        case "literal_error":
            yield f"{key}: {unknown(detail['input'], _quoted(context['expected']))}"
        case "union_tag_invalid":
            (named,) = _quoted(context["discriminator"])
            yield f"{key}.{named}: {unknown(context['tag'], _quoted(context['expected_tags']))}"
        case "union_tag_not_found":
            yield f"{key}.{_quoted(context['discriminator'])[0]}: missing; expected a value"
        case "value_error":  # raised by the schema itself, and already begins with the key
            yield from str(context["error"]).splitlines()
        case _:
            yield f"{key}: {detail['msg']}, found {shortened(repr(detail['input']), LONGEST_NAME)}"


def _quoted(text: str) -> list[str]:
    return re.findall(r"'([^']*)'", text)


def _fields(kind: type[BaseModel], above: Iterable[int | str]) -> set[str]:
    """Return the keys that the block at a location can have; tags of unions narrow it down."""
    models = {kind}
    for name in above:
        fields = [model.model_fields[name] for model in models if name in model.model_fields]
        inner = {model for field in fields for model in _models(field.annotation)}
        tags = {m: [get_args(f.annotation) for f in m.model_fields.values()] for m in models}
        models = inner or {m for m in models if name in chain(*tags[m])} or models
    return {name for model in models for name in model.model_fields}


def _models(annotation: Any) -> set[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return {annotation}
    return {model for inner in get_args(annotation) for model in _models(inner)}


def _dotted(location: Sequence[int | str], tree: Any) -> str:
    """Return the key as it is typed, without the tags of unions, which are no keys."""
    names = []
    for depth, name in enumerate(location):
        is_place = isinstance(tree, list) and isinstance(name, int)
        child = tree.get(name) if isinstance(tree, dict) else tree[name] if is_place else None
        if child is not None or depth == len(location) - 1:
            names.append(str(name))
            tree = child
    return ".".join(names)
