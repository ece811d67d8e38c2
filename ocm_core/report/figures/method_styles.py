"""One line style per covariance method, the same in every figure of a page.

Colour alone never tells two methods apart: markers and dashes differ too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from ocm_core.report.page.style import (
    EXACT,
    FIXED,
    LEARNED,
    PROBED,
    RELATIVE,
    LineStyle,
)
from ocm_core.report.statistics.head_families import (
    families_together,
    head_families,
    relative_heads,
)

if TYPE_CHECKING:
    from ocm_core.schema.experiment import Experiment

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
    "none": LineStyle(FIXED, "ink", "star-open", "solid", width=1.3),
}
_UNLISTED = LineStyle(LEARNED, "purple", "star", "dot")
_FURTHER = (
    ("dot", "cross"),
    ("dash", "x"),
    ("solid", "star"),
    ("dashdot", "diamond-open"),
    ("longdash", "square-open"),
)
_RELATIVE_DASH = "longdash"
_THIN = 1.8


def method_styles(experiment: Experiment) -> dict[str, LineStyle]:
    """Of all methods, families of heads together: legends and charts follow this order."""
    families = head_families(experiment)
    labels = families_together(experiment.methods, families)
    kinds = {label: experiment.methods[label].kind for label in labels}
    return line_styles(kinds, relative_heads(families))


def line_styles(
    kinds: Mapping[str, str], relative: Collection[str] = frozenset()
) -> dict[str, LineStyle]:
    """The style of each method label; labels that share a kind share its hue and no dash.

    A label that stands for its kind (`ocm`, or the only one of the kind) looks like it. So does one
    that stands for the kind among the `relative` heads (`ocm_relative`), but for its dash and an
    open marker. The others are variants.
    """
    own = {
        label: _relative(kind, kinds, relative) if label in relative else _published(kind)
        for label, kind in kinds.items()
    }
    main = {label: own[label] for label in kinds if _stands_for_kind(label, kinds, relative)}
    seen: Counter[str] = Counter()
    styles = {}
    for label, kind in kinds.items():
        if label in main:
            styles[label] = main[label]
            continue
        taken = {main[other].dash for other in main if kinds[other] == kind}
        free = [look for look in _FURTHER if look[0] not in taken]
        dash, marker = free[seen[kind] % len(free)]
        width = min(own[label].width, _THIN)
        styles[label] = replace(own[label], dash=dash, marker=marker, width=width)
        seen[kind] += 1
    return styles


def _stands_for_kind(label: str, kinds: Mapping[str, str], relative: Collection[str]) -> bool:
    kind, is_relative = kinds[label], label in relative
    alike = [m for m in kinds if kinds[m] == kind and (m in relative) == is_relative]
    return len(alike) == 1 or label in (kind, f"{kind}_relative")


def _published(kind: str) -> LineStyle:
    return _BY_KIND.get(kind, _UNLISTED)


def _relative(kind: str, kinds: Mapping[str, str], relative: Collection[str]) -> LineStyle:
    """Thinner where a head of the papers' form is drawn beside it."""
    base = _published(kind)
    beside = any(kinds[label] == kind and label not in relative for label in kinds)
    return replace(
        base,
        group=RELATIVE,
        dash=_RELATIVE_DASH,
        marker=f"{base.marker}-open",
        width=min(base.width, _THIN) if beside else base.width,
    )
