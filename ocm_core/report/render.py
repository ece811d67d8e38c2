"""Rendering of a page into one HTML file: same arguments, same bytes.

Everything is escaped by Jinja but this package's own style sheets and script, and Plotly's bundle.
"""

import json
import re
from collections.abc import Collection
from functools import partial
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from ocm_core.report.charts import PALETTES, SCALE
from ocm_core.report.document import BOX, Figure, Glossary, Page, Plot, digits
from ocm_core.results.replicates import NOISE
from ocm_core.text import listed

BUNDLE = "plotly.min.js"  # beside the pages of a site


def render(page: Page, *, bundle: str | None = None) -> str:
    """Render a page with Plotly inside, or with a link to a `bundle` that pages share."""
    from plotly.offline import get_plotlyjs

    figures = [block for block in page.blocks if isinstance(block, Figure)]
    charts = any(isinstance(pane, Plot) for figure in figures for pane in figure.panes)
    glossaries = (block for block in page.blocks if isinstance(block, Glossary))
    return render_template(
        "page.html",
        explained={label for known in glossaries for label in (*known.methods, *known.samplers)},
        page=page,
        plotly=Markup(get_plotlyjs()) if charts and not bundle else None,
        bundle=bundle if charts else None,
    )


def render_template(name: str, explained: Collection[str] = (), **values: Any) -> str:
    """Render a template of this package; `explained` labels become links to the glossary."""
    loader = PackageLoader("ocm_core.report")
    environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined)
    environment.trim_blocks = environment.lstrip_blocks = True
    compact: Any = {"sort_keys": True, "separators": (",", ":"), "allow_nan": False}
    environment.filters |= {
        "kind": lambda block: type(block).__name__.lower(),
        # no `</script>` can end it
        "json": lambda value: Markup(json.dumps(value, **compact).replace("<", "\\u003c")),
        "attribute": json.dumps,
        "prose": _prose,
        "number": lambda value: digits(value, 4),
        "anchor": _anchor,
        # the last of its parts that is explained: of `quality, delta`, the method
        "about": lambda label: ["", *(p for p in label.split(", ") if p.lower() in explained)][-1],
        "listed": listed,
        "linked": partial(_linked, explained=explained),
        "source": lambda file: Markup(loader.get_source(environment, file)[0]),
    }
    shared = {"palettes": PALETTES, "scale": SCALE, "box": BOX, "noise": NOISE}
    return environment.get_template(name).render(**shared, **values)


def _anchor(label: str) -> str:
    """Return the id of a label's entry in the glossary."""
    return f"about-{re.sub(r'[^a-z0-9]+', '-', label.lower())}"


def _linked(text: str, explained: Collection[str]) -> Markup:
    """Link labels that the glossary explains, alone or behind one another: `quality, delta`."""
    link = Markup('<a href="#{}">{}</a>')
    return Markup(", ").join(
        link.format(_anchor(part), part) if part.lower() in explained else escape(_prose(part))
        for part in text.split(", ")
    )


def _prose(text: str) -> str:
    """Keep equations such as K = 5 on one line."""
    return text.replace(" = ", "\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}")
