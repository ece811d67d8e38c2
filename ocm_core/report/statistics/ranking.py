"""Which of several methods is best, which second, and which are within noise of the best."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite

from ocm_core.report.statistics.method_comparison import MethodComparison


@dataclass(frozen=True)
class Place:
    """Of one method among others; the best has no tie with itself."""

    order: int  # 0 is best; equals share a place
    tied: bool = False


def places(at: MethodComparison, *, higher: bool = False) -> dict[str, Place]:
    """Of every method with a finite mean. Alone there is nothing to be better than: none."""
    sign = -1.0 if higher else 1.0
    finite = {label: sign * mean for label, mean in at.means.items() if isfinite(mean)}
    levels = sorted({*finite.values()})
    if len(finite) < 2:
        return {}
    best = min(finite, key=finite.__getitem__)
    return {
        label: Place(levels.index(mean), mean > levels[0] and at.gap(label, best).is_noise)
        for label, mean in finite.items()
    }
