"""A page of the size of `digits`, with its committed numbers: small, whole, the same each time."""

from __future__ import annotations

import re

import pytest

from ocm_core.report.page.document import Figure, Headline, Page
from ocm_core.report.page.render import anchor, render
from tests.report import committed
from tests.report.markup import (
    Elements,
    assert_figure_is_accessible,
    assert_ids_are_unique,
    assert_nothing_is_loaded,
    figures,
    without_plotly,
)

LIMIT = 6_000_000


@pytest.fixture(scope="module")
def made() -> Page:
    return committed.digits_page()


@pytest.fixture(scope="module")
def html(made: Page) -> str:
    return render(made)


def test_it_is_at_most_six_megabytes(html: str) -> None:
    assert len(html.encode()) < LIMIT


def test_it_is_whole_and_loads_nothing(html: str) -> None:
    own = without_plotly(html)
    for figure in figures(own).values():
        assert_figure_is_accessible(figure)
    assert_ids_are_unique(own)
    assert_nothing_is_loaded(own)


def test_samples_frontier_and_table_come_before_any_prose(made: Page, html: str) -> None:
    sheet, frontier, headline = made.glance
    assert isinstance(sheet, Figure) and isinstance(frontier, Figure)
    assert (sheet.id, frontier.id) == ("sheet", "frontier") and isinstance(headline, Headline)
    body = without_plotly(html).split("</header>")[1]
    places = [body.index(mark) for mark in ('id="sheet"', 'id="frontier"', 'id="headline"', "<nav")]
    assert places == sorted(places) and places[0] < body.index("<p")


def test_every_section_is_folded_and_opens_with_its_finding(made: Page, html: str) -> None:
    for section in made.sections:
        assert section.finding, section.id
    folds = re.findall(r'<details class="fold"( open)?>\s*<summary><h2', html)
    assert len(folds) == len(made.sections) and not any(folds)


def test_every_label_leads_to_the_glossary(made: Page, html: str) -> None:
    own = without_plotly(html)
    ids = {attributes.get("id") for _, attributes in Elements(own).elements}
    for label in committed.digits().experiment.methods:
        assert anchor(label) in ids
        assert f'<td><a href="#{anchor(label)}">{label}</a></td>' in own
    legends = re.findall(r'data-method="([^"]*)">.*?</span>', own, flags=re.DOTALL)
    keys = re.findall(r'<span class="key">.*?</span>', own, flags=re.DOTALL)
    assert len(keys) == len(legends) > 20
    assert all('<a class="what" href="#about-' in key for key in keys)
