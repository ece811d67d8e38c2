"""Values set from the command line, as the text of an overlay that keeps its comments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from io import StringIO
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from ruamel.yaml import YAML

from ocm_core.errors import OcmError, unknown
from ocm_core.params.compose import compose, dotted, near
from ocm_core.params.resolved import overlay


def assigned(name: str, assignments: Sequence[str]) -> str:
    """The overlay of an experiment with `key=value`s written into it; values as in Hydra."""
    known = dict(dotted(compose(name).model_dump(mode="json", exclude={"name"})))
    values = dict(_parse(assignment, known) for assignment in assignments)
    yaml = YAML()
    yaml.indent(mapping=2, sequence=4, offset=2)
    yaml.width = 10_000  # lines stay as they are
    tree = yaml.load(overlay(name))
    for key, value in values.items():
        *above, last = key.split(".")
        node = tree
        for part in above:
            found = node.get(part)
            node[part] = deepcopy(found) if isinstance(found, Mapping) else {}  # no alias any more
            node = node[part]
        node[last] = value
    text = StringIO()
    yaml.dump(tree, text)
    return text.getvalue()


def _parse(assignment: str, known: Mapping[str, Any]) -> tuple[str, Any]:
    key, equals, _ = assignment.partition("=")
    if not equals:
        raise OcmError(f"{assignment!r}: expected key=value")
    if key not in known:
        raise OcmError(f"{assignment!r}: key {unknown(key, near(key, set(known)))}")
    try:
        value: Any = OverridesParser.create().parse_override(assignment).value()
    except HydraException as error:
        raise OcmError(f"{assignment!r}: {' '.join(str(error).split())}") from None
    if isinstance(known[key], Mapping) and value is not None:
        raise OcmError(f"{assignment!r}: {key} is a group; set one of {', '.join(known[key])}")
    return key, value
