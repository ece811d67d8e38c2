"""Doing what a page says: new files have their name above them, diffs edit what is there."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_BLOCK = re.compile(
    r"(?:^`(?P<file>[\w./]+)`\n)?^```(?P<language>\w+)\n(?P<text>.*?)^```$", re.M | re.S
)


class Block(NamedTuple):
    file: str | None
    language: str
    text: str


def blocks(page: str) -> Iterator[Block]:
    """The code of a page in its order; a diff without a name goes on with the file before."""
    file = None
    for found in _BLOCK.finditer(page):
        named = found["file"]
        file = named or (file if found["language"] == "diff" else None)
        yield Block(file, found["language"], found["text"])


def commands(page: str) -> list[list[str]]:
    """What it tells to type."""
    shells = [block.text for block in blocks(page) if block.language == "sh"]
    return [line.split() for text in shells for line in text.splitlines()]


def follow(page: str, root: Path) -> list[Path]:
    """Write and edit what the page says, below `root`; returns the files."""
    touched = []
    for block in blocks(page):
        if block.file is None:
            continue
        path = root / block.file
        if block.language == "diff":
            lines = block.text.splitlines(keepends=True)
            assert all(line[0] in " +-\n" for line in lines), f"{block.file}: no diff"
            old, new = (
                "".join(line[1:] or "\n" for line in lines if line[0] != out) for out in "+-"
            )
            text = path.read_text()
            assert text.count(old) == 1, f"{block.file}: expected once: {old}"
            path.write_text(text.replace(old, new))
        else:
            assert not path.exists(), f"{block.file} is there already; the page calls it new"
            path.write_text(block.text)
        touched.append(path)
    return list(dict.fromkeys(touched))
