"""Reading a rendered page."""

from __future__ import annotations

import re
from html.parser import HTMLParser

from plotly.offline import get_plotlyjs


class Elements(HTMLParser):
    """Every element with its attributes."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def having(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


def without_plotly(html: str) -> str:
    """The page without Plotly's bundle, which must be in it exactly once."""
    assert html.count(get_plotlyjs()) == 1
    return html.replace(get_plotlyjs(), "")


def figures(own: str) -> dict[str, str]:
    """The markup of each figure, by its id."""
    found = re.findall(r"<figure.*?</figure>", own, flags=re.DOTALL)
    return {Elements(figure).having("figure")[0]["id"] or "": figure for figure in found}


def assert_nothing_is_loaded(own: str) -> None:
    elements = Elements(own)
    assert not elements.having("link") and not elements.having("iframe")
    sources = [
        attributes["src"] or "" for _, attributes in elements.elements if "src" in attributes
    ]
    assert all(source.startswith("data:image/webp;base64,") for source in sources)
    assert "url(" not in own and "@import" not in own
    links = [attributes["href"] or "" for attributes in elements.having("a")]
    assert all(link.startswith(("#", "data:text/csv")) for link in links)


def assert_figure_is_accessible(figure: str) -> None:
    elements = Elements(figure)
    assert re.search(r"<figcaption>\S", figure)
    drawings = [a for _, a in elements.elements if a.get("role") == "img"]
    images = elements.having("img")
    assert drawings or images
    assert all(drawing["aria-label"] for drawing in drawings)
    assert all(image["alt"] and image["width"] and image["height"] for image in images)
    assert elements.having("td") and elements.having("details")
    assert [a for a in elements.having("a") if "download" in a]


def assert_ids_are_unique(own: str) -> None:
    ids = [attributes["id"] for _, attributes in Elements(own).elements if "id" in attributes]
    assert len(ids) == len(set(ids))
