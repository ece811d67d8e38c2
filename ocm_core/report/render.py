"""Rendering of a page into one HTML file.

Everything is escaped by Jinja; only this package's own style sheet, script and Plotly's bundle go
in as they are, and Plotly's only if there is a chart to draw. Nothing in the file depends on
anything but its arguments: same inputs, same bytes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from functools import partial
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from ocm_core.report.document import BOX, Figure, Page, Plot
from ocm_core.report.result_table import digits
from ocm_core.report.style import palettes

BUNDLE = "plotly.min.js"  # beside the pages of a site


def render(page: Page, *, bundle: str | None = None) -> str:
    """Render a page with Plotly inside, or with a link to a `bundle` that pages share."""
    from plotly.offline import get_plotlyjs

    environment, loader = make_environment(page.explained), PackageLoader("ocm_core.report")
    charts = _has_charts(page)
    return environment.get_template("page.html").render(
        page=page,
        css=Markup(loader.get_source(environment, "page.css")[0]),
        script=Markup(loader.get_source(environment, "page.js")[0]),
        plotly=Markup(get_plotlyjs()) if charts and not bundle else None,
        bundle=bundle if charts else None,
        palettes=palettes(),
        explained=page.explained,
        box=BOX,
    )


def make_environment(explained: Collection[str]) -> Environment:
    """Return the templates of this package; `explained` labels become links to the glossary."""
    environment = Environment(
        loader=PackageLoader("ocm_core.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "kind": lambda block: type(block).__name__.lower(),
        "json": _json,
        "attribute": json.dumps,
        "prose": _prose,
        "number": lambda value: digits(value, 4),
        "anchor": anchor,
        "about": _about,
        "linked": partial(_linked, explained=explained),
    }
    return environment


def _has_charts(page: Page) -> bool:
    figures = (block for block in page.blocks if isinstance(block, Figure))
    return any(isinstance(pane, Plot) for figure in figures for pane in figure.panes)


def anchor(label: str) -> str:
    """Return the id of a label's entry in the glossary."""
    return f"about-{re.sub(r'[^a-z0-9]+', '-', label.lower())}"


def _about(label: str, explained: Collection[str]) -> str | None:
    """The last of its parts that is explained: of `quality, delta`, the method."""
    known = [part for part in label.split(", ") if part.lower() in explained]
    return known[-1] if known else None


def _linked(text: str, explained: Collection[str]) -> Markup:
    """Labels that the glossary explains, alone or behind one another: `quality, delta`."""
    parts = [
        Markup('<a href="#{}">{}</a>').format(anchor(part), part)
        if part.lower() in explained
        else escape(_prose(part))
        for part in text.split(", ")
    ]
    return Markup(", ").join(parts)


def _prose(text: str) -> str:
    """Equations such as K = 5 do not break over lines."""
    return text.replace(" = ", "\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}")


def _json(value: Any) -> Markup:
    """JSON that no `</script>` can end, with keys in a fixed order."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return Markup(text.replace("<", "\\u003c"))
