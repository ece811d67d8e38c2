"""The page from made-up numbers: same bytes, nothing injected, nothing loaded, nothing missing."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest

from ocm_core.report.page.document import Headline
from ocm_core.report.page.render import render
from ocm_core.report.page.style import palettes
from ocm_core.report.toy_page import page
from tests.report.markup import (
    ATTACK,
    Elements,
    assert_figure_is_accessible,
    assert_ids_are_unique,
    assert_nothing_is_loaded,
    figures,
    without_plotly,
)
from tests.report.synthetic_toy import OCM, SN, results, toy

LIMIT = 6_000_000


@pytest.fixture(scope="module")
def html() -> str:
    return render(page(toy()))


@pytest.fixture(scope="module")
def own(html: str) -> str:
    return without_plotly(html)


def test_equal_inputs_give_equal_bytes(html: str) -> None:
    assert render(page(toy())) == html


def test_the_page_is_small_enough_to_send(html: str) -> None:
    assert len(html.encode()) < LIMIT


def test_markup_in_parameters_stays_text() -> None:
    pages = (render(page(toy(title=text, summary=text))) for text in ("x", ATTACK))
    plain, attacked = (Elements(without_plotly(html)) for html in pages)
    assert attacked.tags == plain.tags


def test_nothing_is_loaded_from_anywhere(own: str) -> None:
    assert_nothing_is_loaded(own)


def test_every_figure_has_caption_description_and_table(own: str) -> None:
    found = figures(own)
    assert list(found) == [
        "sheet",
        "frontier",
        "mmd-ddpm",
        "mmd-ddim",
        "samples",
        "covariance-error",
        "nll",
        "chosen-timesteps",
        "density",
        "training-curves",
    ]
    for figure in found.values():
        assert_figure_is_accessible(figure)


def test_ids_are_unique(own: str) -> None:
    assert_ids_are_unique(own)


def test_every_plot_has_data_and_only_colours_that_the_palettes_have(own: str) -> None:
    specs = re.findall(r'<script type="application/json" class="spec">(.*?)</script>', own)
    # frontier by sampler; densities; covariance error and MMD by score; bounds by chain; chosen
    # timesteps; training
    assert len(specs) == 2 + 6 + 3 * 2 + 2 + 1 + 1
    for spec in specs:
        assert all(trace["x"] and trace["y"] for trace in json.loads(spec)["data"])
    for scheme in palettes().values():
        assert set(re.findall(r"var\(--([\w-]+)\)", own)) <= set(scheme)


def test_sections_without_data_are_absent() -> None:
    bare = replace(toy(), samples={}, curves={}, dataset=results().drop_vars("clamped"))
    sections = {section.id: section for section in page(bare).sections}
    assert "training" not in sections
    assert len(sections["quality"].blocks) == 4


def test_clamped_variances_are_told_only_where_there_are_any(own: str) -> None:
    assert "out of range" not in own
    clamping = results()
    clamping["clamped"].loc[{"sampler": "ddim", "method": SN, "steps": 5}] = 0.25
    assert "out of range" in render(page(replace(toy(), dataset=clamping)))


def test_baselines_that_moments_could_not_give_are_counted(own: str) -> None:
    assert "took its place" not in own
    told = render(page(replace(toy(), replaced_baselines={"true": 0, "learned": 94})))
    assert "took its place: at up to 94 of 1000 timesteps with the learned score." in told


def findings(**changes: Any) -> dict[str, str]:
    """What each section says while it is folded."""
    return {section.id: section.finding for section in page(replace(toy(), **changes)).sections}


def test_findings_name_the_best_method_and_the_claims_that_fail() -> None:
    told = findings()
    assert all(told.values())
    assert (
        "at K = 5 by exact_full (0.1) with DDPM and exact_full (0.1) with DDIM" in told["quality"]
    )
    assert "MMD of 0.05" in told["quality"]
    assert "ocm_relative has 4 and 4 times that with DDPM" in told["quality"]
    assert "ocm_relative with the true score (0.0002)" in told["covariance"]
    assert told["claims"].startswith("Of the paper's claims, these hold: ocm_relative's lower")
    assert "not" not in told["claims"]
    worse = results()
    worse["mmd"].loc[{"method": "exact_full"}] = 0.9
    failing = "these do not hold: exact_full better than exact_diag at K = 10."
    assert findings(dataset=worse)["claims"].endswith(failing)


def test_the_first_table_has_the_best_ocm_and_the_fixed_variances() -> None:
    (headline,) = (block for block in page(toy()).glance if isinstance(block, Headline))
    groups = {group.title: group for group in headline.table.groups}
    rows = {row.label: row.cells for row in groups["MMD ↓, DDPM"].rows}
    assert [*rows] == ["best of ours", OCM, "exact_diag", "beta", "beta_tilde"]
    assert rows["best of ours"][0].note == "exact_full" and rows["best of ours"][0].rank == "best"
    assert {"bits/dim ↓, even chain", "bits/dim ↓, optimal chain"} <= {*groups}
    assert headline.table.columns == ("K = 5", "K = 10", "K = 20")
    assert len(headline.claims) == 6


def test_an_axis_of_guidance_without_guidance_changes_nothing(html: str) -> None:
    with_axis = results()
    with_axis[["mmd", "clamped"]] = with_axis[["mmd", "clamped"]].expand_dims(guidance=[1.0])
    assert render(page(replace(toy(), dataset=with_axis))) == html
