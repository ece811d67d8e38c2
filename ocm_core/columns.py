"""Rows as aligned columns for the terminal."""

from __future__ import annotations

from collections.abc import Collection, Sequence


def columns(
    heads: Sequence[str], rows: Sequence[Sequence[str]], right: Collection[str] = ()
) -> list[str]:
    """A line of heads, a rule, and a line per row; the columns named in `right` end alike."""
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    lines = [heads, ["-" * width for width in widths], *rows]
    signs = [">" if head in right else "<" for head in heads]
    return [
        "  ".join(
            f"{cell:{sign}{width}}" for cell, sign, width in zip(line, signs, widths, strict=True)
        ).rstrip()
        for line in lines
    ]
