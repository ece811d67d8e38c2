"""What lies outside the range of its axis stands at the edge, with its value; no bar leaves it.

One method at 726 bits would squeeze all others into a tenth of the height: an axis shows the
interesting range, and this says what is beyond.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import log10
from typing import Any

import numpy as np
import xarray as xr

from ocm_core.report.page.style import var

_INSIDE = 0.8  # of all values lie inside the range
_ROOM = 1.3
_SQUEEZED = 2.0  # an axis is cut if that makes the rest so many times larger
_APART = 12  # pixels between two values at an edge
_HEIGHT = 300  # of a chart, about
_WIDTH = 0.14  # of a chart: of a value at its edge


def interesting(values: xr.DataArray, *, log: bool, higher: bool = False) -> xr.DataArray:
    """The values without those far out on the bad side: high, or low where higher is better."""
    finite = values.values[np.isfinite(values.values)]
    places = np.log(finite) if log else finite
    sizes = -places if higher else places
    best, most = sizes.min(), np.quantile(sizes, _INSIDE)
    end = max(best + _ROOM * (most - best), _half_of_each(values, log=log, higher=higher))
    if not sizes.max() - best > _SQUEEZED * (end - best) > 0:
        return values
    limit = np.exp(end) if log else (-end if higher else end)
    return values.where(values >= limit) if higher else values.where(values <= limit)


def _half_of_each(values: xr.DataArray, *, log: bool, higher: bool) -> float:
    """As far out as half of the methods are somewhere: they are drawn at every K."""
    lines = "method" if "method" in values.dims else str(values.dims[0])
    middle = values.median(lines)
    worst = float(middle.min() if higher else middle.max())
    place = float(np.log(worst)) if log else worst
    return -place if higher else place


@dataclass(frozen=True)
class _Limits:
    """The range of one axis, as numbers."""

    name: str  # x or y
    log: bool
    low: float
    high: float

    @classmethod
    def of(cls, name: str, layout: Mapping[str, Any]) -> _Limits | None:
        """None where the axis takes what range it needs."""
        axis = layout.get(f"{name}axis", {})
        if "range" not in axis:
            return None
        log, ends = axis.get("type") == "log", axis["range"]
        low, high = (10.0**end for end in ends) if log else ends
        return cls(name, log, low, high)

    def clipped(self, value: float) -> float:
        return min(max(value, self.low), self.high)

    def has(self, value: float | None) -> bool:
        return value is None or self.low <= value <= self.high

    def place(self, value: float) -> float:
        """As layouts of Plotly say it."""
        return log10(value) if self.log else value

    def share(self, value: float) -> float:
        """Of the way from the low end to the high one."""
        low, high = self.place(self.low), self.place(self.high)
        return (self.place(value) - low) / (high - low)


def keep_inside(tree: dict[str, Any]) -> None:
    """Of a chart as Plotly's JSON tree, whose traces are lines with markers."""
    limits = [_Limits.of(name, tree["layout"]) for name in "xy"]
    known = [one for one in limits if one is not None]
    log = {name: tree["layout"].get(f"{name}axis", {}).get("type") == "log" for name in "xy"}
    outside = [note for trace in tree["data"] for note in _outside(trace, known, log)]
    for trace in tree["data"]:
        for one in known:
            _shorten_bars(trace, one)
            _move(trace, one)
    if outside:
        tree["layout"].setdefault("annotations", []).extend(_stacked(outside))


@dataclass(frozen=True)
class _Outside:
    """A point beyond the edge of an axis."""

    trace: Mapping[str, Any]
    limits: _Limits
    value: float
    other: _Limits | None  # of the axis along the edge
    along: float
    along_log: bool

    @property
    def is_high(self) -> bool:
        return self.value > self.limits.high

    @property
    def edge(self) -> tuple[str, bool]:
        return self.limits.name, self.is_high

    @property
    def share(self) -> float:
        """Of the way along the edge; of an axis without a range, the place itself."""
        return (
            self.along if self.other is None else self.other.share(self.other.clipped(self.along))
        )


def _outside(
    trace: Mapping[str, Any], known: Sequence[_Limits], log: Mapping[str, bool]
) -> Iterator[_Outside]:
    if "name" not in trace:
        return
    for limits in known:
        across = "y" if limits.name == "x" else "x"
        other = next((one for one in known if one.name == across), None)
        for value, along in zip(trace[limits.name], trace[across], strict=True):
            if value is not None and along is not None and not limits.has(value):
                yield _Outside(trace, limits, value, other, along, log[across])


def _stacked(outside: Sequence[_Outside]) -> Iterator[dict[str, Any]]:
    """So that no value stands on another."""
    for edge in dict.fromkeys(note.edge for note in outside):
        here = [note for note in outside if note.edge == edge]
        if edge[0] == "x":
            here.sort(key=lambda note: note.share, reverse=True)
            yield from map(_annotation, here, _apart(here))
        else:
            for spot in _spots(here):
                spot.sort(key=lambda note: note.value, reverse=edge[1])
                yield from map(_annotation, spot, range(0, _APART * len(spot), _APART))


def _spots(notes: Sequence[_Outside]) -> list[list[_Outside]]:
    """Those at the upper or lower edge that are too near to stand side by side."""
    spots: list[list[_Outside]] = []
    for note in sorted(notes, key=lambda note: note.share):
        near = 0.0 if note.other is None else _WIDTH
        if spots and note.share - spots[-1][0].share <= near:
            spots[-1].append(note)
        else:
            spots.append([note])
    return spots


def _apart(notes: Sequence[_Outside]) -> list[int]:
    """By how many pixels each at the left or right edge has to go down."""
    shifts: list[int] = []
    last = -_APART
    for note in notes:
        wanted = round(_HEIGHT * (1 - note.share))
        place = max(wanted, last + _APART)
        shifts.append(place - wanted)
        last = place
    return shifts


def _annotation(note: _Outside, shift: int) -> dict[str, Any]:
    limits = note.limits
    edge = limits.place(limits.high if note.is_high else limits.low)
    look = {
        "text": f"{note.value:.3g}",
        "name": note.trace["name"],
        "showarrow": False,
        "bgcolor": var("page"),
        "borderpad": 0,
        "font": {"size": 10, "color": note.trace["line"]["color"]},
    }
    along = note.other.clipped(note.along) if note.other else note.along
    if limits.name == "y":
        x = log10(along) if note.along_log else along
        down = -8 - shift if note.is_high else 8 + shift
        return look | {"x": x, "y": edge, "yshift": down, "xshift": 14}
    assert note.other is not None
    side = {"xanchor": "right", "xshift": -6} if note.is_high else {"xanchor": "left", "xshift": 6}
    return look | side | {"x": edge, "y": note.other.place(along), "yshift": -shift}


def _shorten_bars(trace: dict[str, Any], limits: _Limits) -> None:
    bars = trace.get(f"error_{limits.name}")
    if not bars:
        return
    ends = [
        (0.0, 0.0)
        if value is None or not limits.has(value)
        else (min(error or 0.0, value - limits.low), min(error or 0.0, limits.high - value))
        for value, error in zip(trace[limits.name], bars["array"], strict=True)
    ]
    if any(pair != (e or 0.0, e or 0.0) for pair, e in zip(ends, bars["array"], strict=True)):
        bars["symmetric"] = False
        bars["arrayminus"], bars["array"] = (list(side) for side in zip(*ends, strict=True))


def _move(trace: dict[str, Any], limits: _Limits) -> None:
    values = trace.get(limits.name)
    if "name" not in trace or not values or all(map(limits.has, values)):
        return
    if "text" not in trace:
        trace["text"] = [None if value is None else f"{value:.3g}" for value in values]
        trace["hovertemplate"] = "%{x}: %{text}"
    trace[limits.name] = [None if value is None else limits.clipped(value) for value in values]
