"""What the documents say of numbers: the figures, and whose are from before the present code.

A source edit makes what it says of current numbers untrue once, until it is written again or the
experiment is; what it says of old numbers stays true until they are made again.
"""

from __future__ import annotations

import re
from pathlib import Path

from ocm_core.compare.number_state import CURRENT, MISSING, number_state
from ocm_core.compare.recorded import names
from ocm_core.compare.revisions import WorkingTree
from ocm_core.errors import OcmError
from ocm_core.io.atomic import write_text
from ocm_core.overview.result_tables import DOCUMENTS, refilled

FILE = Path("docs/results.md")
_FROM_NOW, _FROM_BEFORE = "of the present code and parameters", "from before"
_BEGIN, _END = "<!-- Written by `ocm status --write`: -->", "<!-- until here. -->"
_NOTE = re.compile(f"{re.escape(_BEGIN)}\n(.*?){re.escape(_END)}", re.DOTALL)
_CLAIM = re.compile(rf"^- `(\w+)`: {_FROM_NOW}$", re.MULTILINE)


def write(root: Path) -> None:
    """Into the tables of all documents, and into the note of docs/results.md."""
    tree = WorkingTree(root)
    for document in filter(Path.exists, (root / name for name in DOCUMENTS)):
        write_text(document, refilled(document.read_text(encoding="utf-8"), tree))
    states = {name: number_state(tree, name) for name in names(tree)}
    lines = [_line(name, state) for name, state in states.items() if state != MISSING]
    text = _text(root)
    note = "\n".join([_BEGIN, *lines, _END])
    write_text(root / FILE, text.replace(_found(text)[0], note))


def untrue(root: Path) -> list[str]:
    """The experiments of whose numbers the note says that they are the present code's, wrongly."""
    tree = WorkingTree(root)
    claimed = _CLAIM.findall(_found(_text(root))[1])
    return [name for name in claimed if number_state(tree, name) != CURRENT]


def _line(name: str, state: str) -> str:
    if state == CURRENT:
        return f"- `{name}`: {_FROM_NOW}"
    return f"- `{name}`: {_FROM_BEFORE} ({state.removeprefix('stale: ')})"


def _text(root: Path) -> str:
    return (root / FILE).read_text(encoding="utf-8")


def _found(text: str) -> re.Match[str]:
    if note := _NOTE.search(text):
        return note
    raise OcmError(f"{FILE}: no lines {_BEGIN!r} and {_END!r}, between which the note stands")
