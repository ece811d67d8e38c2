"""The guard at every door where bytes come in, and how JSON comes in.

Parsers tell of damage in dozens of ways (struct.error, KeyError, RecursionError, MemoryError, ...),
and no list of them is ever complete. So the call that parses, and nothing else, stands inside
`reading`; what it returns is then checked for its types and sizes before it is used.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ocm_core.errors import OcmError, shortened

_LONGEST_REASON = 1000  # characters of what a library says
_MOST_JSON = 16 << 20  # bytes; configurations have a few thousand


@contextmanager
def reading(where: object, expected: str, remedy: str) -> Iterator[None]:
    """Whatever a library raises on bytes that it cannot read becomes one error that names them."""
    try:
        yield
    except OcmError:
        raise
    except Exception as error:
        raise OcmError(
            f"{where}: expected {expected}, found something else ({reason(error)}); {remedy}"
        ) from error


def reason(error: Exception) -> str:
    """What a library says, on one line and not longer than that."""
    said = " ".join(str(error).split())
    return shortened(said, _LONGEST_REASON) or type(error).__name__


def read_json_object(path: Path, remedy: str) -> dict[str, Any]:
    with reading(path, "a JSON object", remedy):
        with path.open("rb") as file:
            content = file.read(_MOST_JSON + 1)
        if len(content) > _MOST_JSON:
            raise ValueError(f"more than {_MOST_JSON} bytes")
        found = json.loads(content)
        if not isinstance(found, dict):
            raise ValueError(f"a {type(found).__name__}")
    return found
