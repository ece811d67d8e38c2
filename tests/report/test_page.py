"""The page from made-up numbers: same bytes, nothing injected, nothing loaded, nothing missing."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from urllib.parse import unquote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plotly.offline import get_plotlyjs

from ocm_core.report.page import Page, Section, Table, render
from ocm_core.report.style import line_styles, palettes
from ocm_core.report.toy import page
from tests.report.synthetic import results, toy

LIMIT = 6_000_000


class Elements(HTMLParser):
    """Every element with its attributes, and the text of the scripts."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if self.elements and self.elements[-1][0] == "script":
            self.scripts.append(data)

    def having(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


@pytest.fixture(scope="module")
def html() -> str:
    return render(page(toy()))


@pytest.fixture(scope="module")
def own(html: str) -> str:
    """The page without Plotly's bundle, which must be in it exactly once."""
    assert html.count(get_plotlyjs()) == 1
    return html.replace(get_plotlyjs(), "")


def test_equal_inputs_give_equal_bytes(html: str) -> None:
    assert render(page(toy())) == html


def test_the_page_is_small_enough_to_send(html: str) -> None:
    assert len(html.encode()) < LIMIT


def test_markup_in_parameters_stays_text() -> None:
    attack = "</title><script>alert(1)</script><img src=x onerror=alert(2)>"
    plain, attacked = (Elements(render(page(toy(title=t, summary=t)))) for t in ("x", attack))
    assert [tag for tag, _ in attacked.elements] == [tag for tag, _ in plain.elements]


@settings(max_examples=20, deadline=None)  # each example renders a page of megabytes
@given(st.text(alphabet="<>/&'\"scriptx!-]", max_size=40))
def test_no_text_leaves_its_table_or_its_script(text: str) -> None:
    section = Section("s", "S", (Table(text, (text,), ((text,),)), text))
    small = render(Page("t", text, (text,), (section,))).replace(get_plotlyjs(), "")
    found = Elements(small)
    assert len(found.having("script")) == 3 and len(found.having("td")) == 1
    link = found.having("a")[-1]
    assert (
        unquote(link["href"] or "")
        == f"data:text/csv;charset=utf-8,{Table(text, (text,), ((text,),)).csv}"
    )


def test_nothing_is_loaded_from_anywhere(own: str) -> None:
    elements = Elements(own)
    assert not elements.having("link") and not elements.having("iframe")
    assert not [attributes for _, attributes in elements.elements if "src" in attributes]
    assert "url(" not in own and "@import" not in own
    links = [attributes["href"] or "" for attributes in elements.having("a")]
    assert all(link.startswith(("#", "data:text/csv")) for link in links)


def test_every_figure_has_caption_description_and_table(own: str) -> None:
    figures = re.findall(r"<figure.*?</figure>", own, flags=re.S)
    ids = [Elements(figure).having("figure")[0]["id"] for figure in figures]
    assert ids == [
        "density",
        "covariance-error",
        "mmd-ddpm",
        "mmd-ddim",
        "samples",
        "training-curves",
    ]
    for figure in figures:
        elements = Elements(figure)
        assert re.search(r"<figcaption>\S", figure)
        pictures = [a for _, a in elements.elements if a.get("role") == "img"]
        assert pictures and all(picture["aria-label"] for picture in pictures)
        assert elements.having("td") and elements.having("details")
        assert [a for a in elements.having("a") if "download" in a]


def test_ids_are_unique(own: str) -> None:
    ids = [attributes["id"] for _, attributes in Elements(own).elements if "id" in attributes]
    assert len(ids) == len(set(ids))


def test_every_plot_has_data_and_only_colours_that_the_palettes_have(own: str) -> None:
    specs = re.findall(r'<script type="application/json" class="spec">(.*?)</script>', own)
    assert len(specs) == 6 + 3 * 2 + 1  # densities; covariance error and MMD by score; training
    for spec in specs:
        assert all(trace["x"] and trace["y"] for trace in json.loads(spec)["data"])
    for scheme in palettes().values():
        assert set(re.findall(r"var\(--([\w-]+)\)", own)) <= set(scheme)


def test_sections_without_data_are_absent() -> None:
    bare = replace(toy(), samples={}, curves={}, results=results().drop_vars("clamped"))
    sections = {section.id: section for section in page(bare).sections}
    assert "training" not in sections
    assert len(sections["quality"].blocks) == 3


def test_clamped_variances_are_told_only_where_there_are_any(own: str) -> None:
    assert "negative entries" not in own
    clamping = results()
    clamping["clamped"].loc[{"sampler": "ddim", "method": "sn", "steps": 5}] = 0.25
    assert "negative entries" in render(page(replace(toy(), results=clamping)))


def test_the_summary_names_the_best_method_and_the_claims_that_fail() -> None:
    first, second, third = page(toy()).summary
    assert "at K = 5 by exact_full (0.1) with DDPM and exact_full (0.1) with DDIM" in first
    assert "MMD of 0.05" in second and "4 and 4 times that with DDPM" in second
    assert third.startswith("Of the paper's claims, these hold: ocm's lower") and "not" not in third
    worse = results()
    worse["mmd"].loc[{"method": "exact_full"}] = 0.9
    assert (
        page(replace(toy(), results=worse))
        .summary[2]
        .endswith("these do not hold: exact_full better than exact_diag at K = 10.")
    )


def test_no_two_methods_look_the_same() -> None:
    styles = line_styles({label: m.kind for label, m in toy().experiment.methods.items()})
    looks = {(style.hue, style.dash) for style in styles.values()}
    markers = {(style.hue, style.marker) for style in styles.values()}
    assert len(looks) == len(markers) == len(styles)
