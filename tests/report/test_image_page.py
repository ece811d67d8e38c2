"""The page of an image experiment: complete, self-contained, bounded, and honest about spaces."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from math import isqrt

import numpy as np
import pytest

from ocm_core.errors import OcmError
from ocm_core.report.figures import deviations, sample_sheets
from ocm_core.report.image_page import ImagePageInputs, page
from ocm_core.report.page.document import Figure, Page
from ocm_core.report.page.provenance import REMAKE, Provenance
from ocm_core.report.page.render import render
from ocm_core.report.page.style import palettes
from ocm_core.report.tables.cost import Cost
from tests.report.markup import (
    ATTACK,
    Elements,
    assert_figure_is_accessible,
    assert_ids_are_unique,
    assert_nothing_is_loaded,
    figures,
    without_plotly,
)
from tests.report.synthetic_images import BOTH, GUIDED, PLAIN, RELATIVE, SMALL, images

LIMIT = 9_000_000
ALWAYS = ["sheet", "frontier", "fid-differences", "fid", "other-measures"]
LIKELIHOOD = ["nll", "nll-terms", "chosen-timesteps", "fid-nll"]
GUIDANCE = ["fid-guidance", "recall-guidance"]
AT_THE_END = ["samples", "deviation", "training-curves"]
OF_FEATURES = ("fid", "other-measures", "fid-nll", "recall-fid", *GUIDANCE)


@pytest.fixture(scope="module", params=[PLAIN, GUIDED])
def shown(request: pytest.FixtureRequest) -> ImagePageInputs:
    return images(request.param)


@pytest.fixture(scope="module")
def made(shown: ImagePageInputs) -> Page:
    return page(shown)


@pytest.fixture(scope="module")
def html(made: Page) -> str:
    return render(made)


@pytest.fixture(scope="module")
def own(html: str) -> str:
    return without_plotly(html)


def figures_of(given: Page) -> dict[str, Figure]:
    return {block.id: block for block in given.blocks if isinstance(block, Figure)}


def test_equal_inputs_give_equal_bytes(shown: ImagePageInputs, html: str) -> None:
    assert render(page(images(shown.experiment.name))) == html


def test_every_figure_is_there_once_with_caption_description_and_table(
    shown: ImagePageInputs, own: str
) -> None:
    found = figures(own)
    guided = shown.experiment.name == GUIDED
    bounds = ["chosen-timesteps"] if guided else LIKELIHOOD
    middle = [*bounds, "recall-fid", *GUIDANCE * guided]
    assert list(found) == [*ALWAYS, *middle, *AT_THE_END]
    for figure in found.values():
        assert_figure_is_accessible(figure)


def test_other_spaces_have_a_section_of_their_own() -> None:
    made = page(replace(images(SMALL), space="efficientnet_lite0"))
    section = next(s for s in made.sections if s.id == "quality-classifier")
    assert "in the features of a classifier trained on these data" in section.finding
    ids = {block.id for block in section.blocks if isinstance(block, Figure)}
    assert ids == {"fid-differences-classifier", "fid-classifier", "other-measures-classifier"}
    own, theirs = (figures_of(made)[id].table for id in ("fid", "fid-classifier"))
    assert own and theirs and len(own.rows) == len(theirs.rows)
    mean = own.columns.index("mean")
    for row, other in zip(own.rows, theirs.rows, strict=True):
        assert row[mean] == pytest.approx(2 * float(other[mean] or 0))
    text = without_plotly(render(made))
    assert_ids_are_unique(text)
    captions = re.findall(r"Features of (EfficientNet-Lite0|a classifier trained)", text)
    assert {*captions} == {"EfficientNet-Lite0", "a classifier trained"}


def test_nothing_is_loaded_and_no_id_occurs_twice(own: str) -> None:
    assert_nothing_is_loaded(own)
    assert_ids_are_unique(own)


def test_every_plot_has_data_and_only_colours_that_the_palettes_have(own: str) -> None:
    specs = re.findall(r'<script type="application/json" class="spec">(.*?)</script>', own)
    for spec in specs:
        data = json.loads(spec)["data"]
        assert data and all(trace["x"] and trace["y"] for trace in data)
    for scheme in palettes().values():
        assert set(re.findall(r"var\(--([\w-]+)\)", own)) <= set(scheme)


def test_panes_answer_to_controls_that_exist(made: Page) -> None:
    for figure in figures_of(made).values():
        choices = {control.name: control.values for control in figure.controls}
        for pane in figure.panes:
            assert all(value in choices[name] for name, value in pane.at.items())
        for name, values in choices.items():
            assert set(values) == {pane.at[name] for pane in figure.panes if name in pane.at}


def test_without_scripts_the_sheets_of_the_first_k_are_shown(made: Page) -> None:
    figure = figures_of(made)["samples"]
    fewest = min(int(pane.at["steps"]) for pane in figure.panes if pane.at)
    visible = [pane for pane in figure.panes if figure.is_first(pane)]
    assert {pane.at["steps"] for pane in visible if pane.at} == {str(fewest)}
    assert len(visible) < len(figure.panes)


def test_controls_can_be_reached_by_keyboard_and_read_aloud(own: str) -> None:
    elements = Elements(figures(own)["samples"])
    inputs = elements.having("input")
    assert {field["type"] for field in inputs} == {"radio", "range", "checkbox"}
    assert all("tabindex" not in field and "disabled" not in field for field in inputs)
    [scale] = [field for field in inputs if field["type"] == "range"]
    assert scale["aria-valuetext"] == json.loads(scale["data-values"] or "")[0]
    assert len(elements.having("legend")) == len(elements.having("fieldset"))


def test_figures_of_features_name_their_space_and_their_sample_count(
    shown: ImagePageInputs,
) -> None:
    found = figures_of(page(replace(shown, space="efficientnet_lite0", count=1234)))
    told = [figure.caption for id, figure in found.items() if id in OF_FEATURES]
    assert len(told) >= 4
    assert all("Features of EfficientNet-Lite0; 1234 samples a cell" in said for said in told)


def test_only_a_distance_of_inception_features_is_called_fid() -> None:
    own = without_plotly(render(page(replace(images(), space="classifier", published=()))))
    text = re.sub(r"<[^>]*>", " ", own.split("</style>")[-1])
    sentences = [s for s in text.split(".") if re.search(r"\bFID\b", s)]
    assert len(sentences) == 1 and "It is not FID" in sentences[0]


def test_markup_in_texts_stays_text() -> None:
    def tags(text: str) -> list[str]:
        given = replace(
            images(title=text),
            space=text,
            provenance=Provenance({REMAKE: text, text: text}, {text: text}),
            curves={text: [{"iteration": 1, text: 0.5}]},
            cost=Cost(text, 1, {"score": 1.0, text: 2.0}, {text: (2.0, 0.1)}),
        )
        return Elements(without_plotly(render(page(given)))).tags

    assert tags(ATTACK) == tags("x")


def test_what_has_no_data_has_no_figure() -> None:
    bare = replace(images(), chains={}, samples={}, test=None, curves={}, cost=None, published=())
    bare = replace(bare, dataset=bare.dataset[["fid"]])
    small = page(bare)
    assert list(figures_of(small)) == ["frontier", "fid-differences", "fid"]
    names = {"quality", "tradeoffs", "claims", "methods", "glossary", "provenance"}
    assert {section.id for section in small.sections} == names


def test_likelihood_alone_makes_a_page() -> None:
    whole = images()
    bound = ["nll", "nll_se", "nll_difference", "nll_difference_se"]
    bare = replace(whole, dataset=whole.dataset[bound], samples={}, curves={})
    assert list(figures_of(page(bare))) == ["nll", "chosen-timesteps"]


def test_several_scores_are_refused() -> None:
    given = images()
    doubled = given.dataset.reindex(score=["published", "learned"])
    with pytest.raises(OcmError, match=r"network\.scores.*one score"):
        page(replace(given, dataset=doubled))


def test_the_largest_page_is_small_enough_to_send() -> None:
    """Noise does not compress, and these just fit without being shrunk."""
    given = images(side=2)
    source = np.random.Generator(np.random.Philox(3))
    side = isqrt(sample_sheets.BUDGET // (3 * 9 * (len(given.samples) + 1)))
    noise = source.integers(0, 256, (9, side, side, 3), np.uint8)
    sources = ["x_t", "npr", "sn", "ocm", "probes_1", "probes_1000"]
    coords = {"t": [1, 5, 20, 50, 100, 200, 400, 800], "source": sources}
    side = isqrt(deviations.BUDGET // (3 * 8 * len(sources)))
    x = source.random((1, 8, len(sources), 1, 3, side, side), np.float32)
    dims = ("score", "t", "source", "image", "axis0", "axis1", "axis2")
    whole = given.dataset.drop_dims(("t", "source"))
    whole = whole.assign(deviation=(dims, x, {"split": "test"})).assign_coords(coords)
    large = replace(given, samples=dict.fromkeys(given.samples, noise), test=noise, dataset=whole)
    assert 7_000_000 < len(render(page(large)).encode()) < LIMIT


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (PLAIN, "undecided."),
        (BOTH, "relative to a baseline (npr_relative, sn_relative, ocm_relative and ocm_tapered)"),
        (RELATIVE, "each claim names the ones that it was checked on."),
    ],
)
def test_the_page_says_on_which_heads_claims_were_checked(name: str, said: str) -> None:
    sections = {section.id: section for section in page(images(name)).sections}
    opening = sections["claims"].blocks[0]
    assert isinstance(opening, str) and said in opening
    assert ("baseline" in opening) == (name != PLAIN)


def test_a_page_with_both_families_is_whole() -> None:
    own = without_plotly(render(page(images(BOTH))))
    for figure in figures(own).values():
        assert_figure_is_accessible(figure)
    assert_ids_are_unique(own)
    assert "Learned, relative to a baseline" in own
