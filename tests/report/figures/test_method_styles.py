"""Methods can be told apart, by dash and by marker, without their colours."""

from __future__ import annotations

from ocm_core.report.figures.method_styles import line_styles
from ocm_core.report.page.style import LineStyle
from tests.report.synthetic_toy import experiment


def test_no_two_methods_look_the_same() -> None:
    styles = line_styles({label: m.kind for label, m in experiment().methods.items()})
    assert_all_different(styles)


def test_variants_of_a_method_do_not_look_like_it() -> None:
    labels = ("ocm", "ocm_3", "ocm_5", "ocm_10", "rademacher_1", "rademacher_100")
    styles = line_styles({label: label.split("_")[0] for label in labels})
    assert styles["ocm"] == line_styles({"ocm": "ocm"})["ocm"]
    assert_all_different(styles)


def assert_all_different(styles: dict[str, LineStyle]) -> None:
    looks = {(style.hue, style.dash) for style in styles.values()}
    markers = {(style.hue, style.marker) for style in styles.values()}
    assert len(looks) == len(markers) == len(styles)
