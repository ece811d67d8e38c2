"""One line style per covariance method, the same in every figure of a page.

Colour alone never tells two methods apart: markers and dashes differ too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from ocm_core.report.page.style import EXACT, FIXED, LEARNED, PROBED, LineStyle

MethodStyles = Mapping[str, LineStyle]  # by label

_BY_KIND = {
    "ocm": LineStyle(LEARNED, "vermillion", "circle", width=4.0),
    "sn": LineStyle(LEARNED, "blue", "square"),
    "npr": LineStyle(LEARNED, "green", "diamond"),
    "iddpm": LineStyle(LEARNED, "purple", "triangle-up", "dash"),
    "analytic": LineStyle(LEARNED, "orange", "triangle-down", "dashdot"),
    "rademacher": LineStyle(PROBED, "sky", "cross", width=1.1),
    "exact_diag": LineStyle(EXACT, "ink", "circle-open", width=1.3),
    "exact_full": LineStyle(EXACT, "ink", "square-open", "dash", width=1.3),
    "beta": LineStyle(FIXED, "grey", "x", "dot"),
    "beta_tilde": LineStyle(FIXED, "grey", "diamond-open", "dash"),
    "delta": LineStyle(FIXED, "grey", "triangle-up-open", "dashdot"),
}
_UNLISTED = LineStyle(LEARNED, "purple", "star", "dot")
_FURTHER = (
    ("dot", "cross"),
    ("dash", "x"),
    ("solid", "star"),
    ("dashdot", "diamond-open"),
    ("longdash", "square-open"),
)


def line_styles(kinds: Mapping[str, str]) -> dict[str, LineStyle]:
    """The style of each method label; labels that share a kind share its hue and no dash.

    Of those, one that is called like its kind looks like it; the others are its variants.
    """
    shared = Counter(kinds.values())
    seen: Counter[str] = Counter()
    styles = {}
    for label, kind in kinds.items():
        base = _BY_KIND.get(kind, _UNLISTED)
        if shared[kind] == 1 or label == kind:
            styles[label] = base
            continue
        variants = [look for look in _FURTHER if kind not in kinds or look[0] != base.dash]
        dash, marker = variants[seen[kind] % len(variants)]
        styles[label] = replace(base, dash=dash, marker=marker, width=min(base.width, 1.8))
        seen[kind] += 1
    return styles
