"""Text for people: aligned tables for the terminal, lists and plurals for sentences."""

from __future__ import annotations

from collections.abc import Collection, Sequence


def text_table(
    heads: Sequence[str], rows: Sequence[Sequence[str]], right: Collection[str] = ()
) -> list[str]:
    """Align heads, a rule and rows; columns named in `right` are flush right."""
    split = [head.split("\n") for head in heads]
    depth = max(map(len, split))
    above = list(zip(*([""] * (depth - len(head)) + head for head in split), strict=True))
    widths = [max(map(len, column)) for column in zip(*above, *rows, strict=True)]
    lines = [*above, ["-" * width for width in widths], *rows]
    signs = [">" if head in right else "<" for head in heads]
    return [
        "  ".join(
            f"{cell:{sign}{width}}" for cell, sign, width in zip(line, signs, widths, strict=True)
        ).rstrip()
        for line in lines
    ]


def listed(words: Sequence[str]) -> str:
    """Join words: `a, b and c`."""
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def plural(count: int, noun: str) -> str:
    """Return the count and the noun, with an s unless the count is 1."""
    return f"{count} {noun}{'' if count == 1 else 's'}"
