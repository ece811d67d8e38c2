"""Text for people: aligned tables for the terminal, lists and plurals for sentences."""

from __future__ import annotations

from collections.abc import Collection, Sequence


def text_table(
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


def listed(words: Sequence[str]) -> str:
    """`a, b and c`."""
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def plural(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
