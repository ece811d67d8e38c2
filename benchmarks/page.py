"""reports/benchmarks.html: each figure against its target, scaling curves, and all numbers."""

from __future__ import annotations

import json
from collections.abc import Mapping

from benchmarks.interface import Benchmark, Outcome
from benchmarks.suite import number, spread, verdict
from ocm_core.report.charts import Spec, axis, log_axis, var
from ocm_core.report.document import DataTable, Figure, Page, Plot, Section
from ocm_core.text import plural

Benchmarks = Mapping[str, Benchmark]
Found = Mapping[str, Outcome]

_RULE = (
    "Everything is measured side by side in one run, ours and the baseline in turn; a ratio is "
    "that of the medians, its spread that of the single repeats. Times are CPU seconds of one "
    "thread unless said otherwise. A benchmark holds where its figure is at most the target."
)


def page(benchmarks: Benchmarks, found: Found) -> Page:
    run = {name: m for name, m in found.items() if m.ratio is not None}
    held = sum(m.holds for m in found.values())
    sections = [_all(benchmarks, found), _against(run), _details(found)]
    if any("sizes" in m.details for m in run.values()):
        sections.insert(2, _growth(run))
    return Page(
        title="Benchmarks",
        subtitle="Ratios to the published way of doing it, each against its target.",
        summary=(f"{plural(held, 'target')} of {len(found)} hold.", _RULE),
        sections=tuple(sections),
    )


_A_CHART = 11  # benchmarks


def _all(benchmarks: Benchmarks, found: Found) -> Section:
    columns = ("benchmark", "what", "baseline", "target", "measured", "unit", "spread", "verdict")
    rows = [
        (
            name,
            benchmarks[name].what,
            benchmarks[name].baseline,
            benchmarks[name].target_words,
            number(m.ratio),
            benchmarks[name].unit,
            spread(m),
            verdict(m),
        )
        for name, m in found.items()
    ]
    return Section("all", "All benchmarks", (DataTable("benchmarks", columns, tuple(rows)),))


def _against(found: Found) -> Section:
    """One row a benchmark, as a share of its target: left of 1 it holds."""
    rows = tuple((name, *_range(m), m.target) for name, m in found.items())
    names = list(found)
    return Section(
        "against",
        "Against the targets",
        (
            Figure(
                id="shares",
                caption="What was measured, over its target; bars reach over the repeats. "
                "Left of the line a target holds.",
                label="Measured figures of all benchmarks as shares of their targets",
                panes=tuple(
                    Plot("", _shares({name: found[name] for name in some}))
                    for some in (names[i : i + _A_CHART] for i in range(0, len(names), _A_CHART))
                ),
                table=DataTable("shares", ("benchmark", "low", "measured", "high", "target"), rows),
                arrangement="alone",
            ),
        ),
    )


def _shares(found: Found) -> Spec:
    names = [name for name in found if found[name].target][::-1]  # nothing is a share of 0
    low, measured, high = zip(
        *([(x or 0.0) / found[n].target for x in _range(found[n])] for n in names), strict=True
    )
    points = {
        "type": "scatter",
        "x": measured,
        "y": names,
        "mode": "markers",
        "marker": {"size": 9, "color": [var("good" if found[n].holds else "bad") for n in names]},
        "error_x": {
            "type": "data",
            "symmetric": False,
            "array": [top - x for top, x in zip(high, measured, strict=True)],
            "arrayminus": [x - bottom for bottom, x in zip(low, measured, strict=True)],
            "color": var("soft"),
            "thickness": 1,
        },
        "hovertemplate": "%{y}: %{x:.3g} of the target<extra></extra>",
    }
    look = dict(
        xaxis=axis("measured, as a share of the target", range=[0, 2]),
        yaxis=axis("", tickfont={"size": 11}),
        shapes=[_target_line()],
    )
    return {"data": [points], "layout": look}


def _range(m: Outcome) -> tuple[float | None, float | None, float | None]:
    return m.low, m.ratio, m.high


def _target_line() -> dict[str, object]:
    look = {"color": var("ink"), "width": 1, "dash": "dot"}
    return {"type": "line", "x0": 1, "x1": 1, "yref": "paper", "y0": 0, "y1": 1, "line": look}


def _growth(found: Found) -> Section:
    curves = {name: m.details for name, m in found.items() if "sizes" in m.details}
    panes, rows = [], []
    for name, details in curves.items():
        key = "seconds" if "seconds" in details else "peak_kilobytes"
        line = {"x": list(details["sizes"]), "y": list(details[key]), "mode": "lines+markers"}
        trace = {"type": "scatter", **line, "line": {"color": var("accent")}}
        look = dict(xaxis=log_axis("size"), yaxis=log_axis(key))
        panes.append(Plot(name, {"data": [trace], "layout": look}))
        rows += [(name, s, v) for s, v in zip(details["sizes"], details[key], strict=True)]
    return Section(
        "growth",
        "Growth",
        (
            Figure(
                id="curves",
                caption="Time in seconds, and peak memory in kilobytes, over a decade.",
                label="Time and memory along the number of samples, steps and images",
                panes=tuple(panes),
                table=DataTable("curves", ("benchmark", "size", "value"), tuple(rows)),
                arrangement="small",
            ),
        ),
    )


def _details(found: Found) -> Section:
    rows = tuple(
        (name, key, value if isinstance(value, str | int | float) else json.dumps(value))
        for name, m in found.items()
        for key, value in m.details.items()
    )
    return Section(
        "details", "Details", (DataTable("all-details", ("benchmark", "detail", "value"), rows),)
    )
