"""Pictures of a kept page, made small: the first ones of samples by `ocm`, or the first of all."""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from dataclasses import dataclass, replace
from html.parser import HTMLParser
from io import BytesIO
from pathlib import Path

from PIL import Image

from ocm_core.io.reading import reading
from ocm_core.overview.kept import KeptPage

COUNT = 3
SIDE = 240  # pixels of a thumbnail, at most
_PICTURE = re.compile(r"data:image/(?:png|webp);base64,")  # pages kept before have PNGs
_SHOWN = re.compile(r"\bocm(_relative)?\b")  # in what a screen reader says of a picture


@dataclass(frozen=True)
class Thumbnail:
    """A picture, or points as an SVG path in a square box."""

    uri: str = ""
    path: str = ""
    box: str = ""
    label: str = ""


def thumbnails(page: KeptPage, file: Path) -> tuple[Thumbnail, ...]:
    found = _Pictures()
    found.feed(page.html)
    with reading(file, "pictures as `ocm keep` leaves them", "restore it, or keep it again"):
        return tuple(
            replace(one, uri=_small(one.uri)) if one.uri else one for one in _chosen(found.pictures)
        )


def _chosen(pictures: list[Thumbnail]) -> list[Thumbnail]:
    return sorted(pictures, key=lambda one: not _SHOWN.search(one.label))[:COUNT]


class _Pictures(HTMLParser):
    """Pictures inside the page, and drawings with a role of their own that are one path each."""

    def __init__(self) -> None:
        super().__init__()
        self.pictures: list[Thumbnail] = []
        self._box = self._label = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag == "img" and _PICTURE.match(given.get("src", "")):
            self.pictures.append(Thumbnail(uri=given["src"], label=given.get("alt", "")))
        elif tag == "svg":
            self._box = given.get("viewbox", "") if given.get("role") == "img" else ""
            self._label = given.get("aria-label", "").rpartition("Here:")[2]
        elif tag == "path" and self._box:
            self.pictures.append(Thumbnail("", given.get("d", ""), self._box, self._label))


def _small(uri: str) -> str:
    image = Image.open(BytesIO(b64decode(_PICTURE.sub("", uri))), formats=["PNG", "WEBP"])
    image.thumbnail((SIDE, SIDE))
    written = BytesIO()
    image.save(written, "WEBP", lossless=True)
    return "data:image/webp;base64," + b64encode(written.getvalue()).decode()
