"""Check a built site as a reader without a network has it: `python workflow/site/links.py site`.

Every address within the site leads to a file, and to an element of it where it has a fragment;
nothing that a page needs (scripts, styles, pictures) comes from elsewhere.
"""

from __future__ import annotations

import sys
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

NEEDED = {"script": "src", "img": "src", "link": "href", "iframe": "src"}
NAMES_ONLY = ("canonical", "next", "prev")  # relations that load nothing


class Addresses(HTMLParser):
    """The ids of a page, where its links lead, and what it loads."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.ids |= {given[key] for key in ("id", "name") if key in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        needed = given.get(NEEDED.get(tag, ""), "")
        if needed and given.get("rel") not in NAMES_ONLY:
            self.loaded.append(needed)


@cache
def addresses(page: Path) -> Addresses:
    return Addresses(page.read_text("utf-8"))


def problems(site: Path) -> list[str]:
    pages = sorted(page for page in site.rglob("*.html") if page.name != "404.html")
    return [
        f"{page.relative_to(site)}: {said}" for page in pages for said in _problems(page.resolve())
    ]


def _problems(page: Path) -> list[str]:
    found = addresses(page)
    foreign = [f"loads {url}" for url in found.loaded if urlsplit(url).scheme in ("http", "https")]
    within = [url for url in (*found.links, *found.loaded) if not urlsplit(url).scheme]
    return [*foreign, *(f"no such place: {url}" for url in within if not _leads(page, url))]


def _leads(page: Path, url: str) -> bool:
    parts = urlsplit(url)
    target = page.parent / unquote(parts.path) if parts.path else page
    if not target.is_file():
        return False
    if target.suffix != ".html" or not parts.fragment or parts.fragment.startswith("__"):
        return True  # two underscores: the theme's own, which its script makes
    return unquote(parts.fragment) in addresses(target.resolve()).ids


if __name__ == "__main__":
    wrong = problems(Path(sys.argv[1]))
    print("\n".join(wrong) or f"{sys.argv[1]}: every link leads somewhere, nothing is loaded")
    sys.exit(bool(wrong))
