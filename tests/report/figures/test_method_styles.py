"""Methods can be told apart, by dash and by marker, without their colours."""

from __future__ import annotations

from ocm_core.report.figures.method_styles import line_styles, method_styles
from ocm_core.report.page import style
from ocm_core.report.page.style import LineStyle
from tests.report import synthetic_toy
from tests.report.synthetic_images import BOTH, PLAIN, RELATIVE, experiment


def test_no_two_methods_look_the_same() -> None:
    for name in (PLAIN, BOTH, RELATIVE, "digits_probes"):
        assert_all_different(method_styles(experiment(name)))
    assert_all_different(method_styles(synthetic_toy.experiment()))


def test_variants_of_a_method_do_not_look_like_it() -> None:
    labels = ("ocm", "ocm_3", "ocm_5", "ocm_10", "rademacher_1", "rademacher_100")
    styles = line_styles({label: label.split("_")[0] for label in labels})
    assert styles["ocm"] == line_styles({"ocm": "ocm"})["ocm"]
    assert_all_different(styles)


def test_a_relative_head_has_the_hue_of_its_kind_and_looks_otherwise() -> None:
    styles = method_styles(experiment(BOTH))
    for kind in ("npr", "sn", "ocm"):
        published, relative = styles[kind], styles[f"{kind}_relative"]
        assert published == line_styles({kind: kind})[kind]
        assert relative.hue == published.hue and relative.width <= 1.8
        assert relative.dash != published.dash and relative.is_open and not published.is_open
        assert (published.group, relative.group) == (style.LEARNED, style.RELATIVE)
    assert styles["ocm_tapered"].group == style.RELATIVE
    assert styles["iddpm"].group == style.LEARNED


def test_a_relative_head_looks_relative_where_it_is_alone() -> None:
    alone = method_styles(experiment(RELATIVE))["ocm_relative"]
    beside = method_styles(experiment(BOTH))["ocm_relative"]
    assert (alone.dash, alone.marker) == (beside.dash, beside.marker)
    assert alone.width == line_styles({"ocm": "ocm"})["ocm"].width


def test_legends_have_families_together() -> None:
    labels = list(method_styles(experiment(BOTH)))
    first = labels.index("npr")
    assert labels[first : first + 4] == ["npr", "sn", "ocm", "npr_relative"]


def assert_all_different(styles: dict[str, LineStyle]) -> None:
    looks = {(style.hue, style.dash) for style in styles.values()}
    markers = {(style.hue, style.marker) for style in styles.values()}
    assert len(looks) == len(markers) == len(styles)
