"""Output for people: trees by key, aligned tables, lists and plurals, a picture of many images."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from math import ceil, sqrt
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ocm_core.shapes import Images


def leaves(tree: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every value of a tree with its dotted key; a list or an empty branch is a value."""
    for name, value in tree.items():
        if value and isinstance(value, Mapping):
            yield from leaves(value, f"{above}{name}.")
        else:
            yield f"{above}{name}", value


def text_table(
    heads: Sequence[str], rows: Sequence[Sequence[str]], right: Collection[str] = ()
) -> list[str]:
    """Align heads, a rule and rows; columns named in `right` are flush right."""
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
    """Join words: `a, b and c`."""
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def some(names: Sequence[str], most: int = 10) -> str:
    """Join the first names: `a, b and 7 more`."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def plural(count: int, noun: str) -> str:
    """Return the count and the noun, with an s unless the count is 1."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def save_grid(images: Images, path: str | Path, zoom: int = 1) -> None:
    """Save images in [-1, 1] as one PNG, nearly square; a pixel becomes `zoom` wide."""
    import torch
    from PIL import Image

    count, channels, height, width = images.shape
    columns = ceil(sqrt(count))
    pixels = ((images + 1) * 127.5).round().clamp(0, 255).to("cpu", torch.uint8)
    black = pixels.new_zeros(-count % columns, channels, height, width)
    grid = torch.cat([pixels, black]).view(-1, columns, channels, height, width)
    flat = grid.permute(0, 3, 1, 4, 2).flatten(2, 3).flatten(0, 1).numpy()
    flat = flat.repeat(zoom, axis=0).repeat(zoom, axis=1)
    Image.fromarray(flat.squeeze(-1) if channels == 1 else flat).save(path)
