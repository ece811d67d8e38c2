"""How far each method is from a reference method, in pairs that share their starting noise.

Where methods are close, their own error bars overlap and say nothing: most of that noise is shared,
and is gone from the differences.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import xarray as xr

from ocm_core.report.figures import charts
from ocm_core.report.figures.method_styles import MethodStyles
from ocm_core.report.page.document import Control, DataTable, Figure, Plot, Value
from ocm_core.report.page.style import var
from ocm_core.report.statistics import estimates
from ocm_core.report.statistics.image_results import ImageResults, SampleMeasure

_INSIDE = 0.8  # of all differences lie inside the drawn range
_ROOM = 1.3
_BROUGHT_OUT = 3  # lines; the others are grey until they are pointed at


def difference_curves(results: ImageResults, styles: MethodStyles, key: str) -> Figure | None:
    """Against the number of evaluations; None where nothing was sampled beside the reference."""
    reference = results.heads(key).label("ocm")
    values = results.dataset[key]
    if reference not in values["method"]:
        return None
    gaps = values.drop_sel({"method": reference}) - values.sel({"method": reference}, drop=True)
    drawn = _Differences(results, styles, results.measures[key], reference, gaps)
    return drawn.figure() if bool(drawn.means.notnull().any()) else None


@dataclass(frozen=True)
class _Differences:
    results: ImageResults
    styles: MethodStyles
    measure: SampleMeasure
    reference: str
    gaps: xr.DataArray  # over sampler, method, steps, guidance and seed

    @property
    def means(self) -> xr.DataArray:
        return estimates.mean(self.gaps)

    @property
    def errors(self) -> xr.DataArray:
        return estimates.standard_error(self.gaps)

    @property
    def limit(self) -> float:
        """Half the height of the axis: most differences lie inside."""
        sizes = np.abs(self.means.values[np.isfinite(self.means.values)])
        return _ROOM * float(np.quantile(sizes, _INSIDE)) or 1.0

    def figure(self) -> Figure:
        name, reference = self.measure.name, self.reference
        shown = charts.drawn(self.means, self.styles)
        panes = tuple(self._panes())
        scales = tuple(dict.fromkeys(pane.at["guidance"] for pane in panes))
        return Figure(
            id=f"{self.measure.key}-differences{self.results.ending}",
            label=f"Line charts of the difference in {name} from {reference}, one line per "
            f"method: {', '.join(shown)}.",
            caption=f"{name} of each method less that of {reference}, in pairs that began with the "
            f"same noise: {'above' if self.measure.higher else 'below'} zero is better than "
            f"{reference}. Bars are standard errors of the differences. A number at the edge is "
            "the value of a point beyond it. Point at a grey line to bring it out. "
            f"{self.results.small_print}",
            panes=panes,
            legend={label: self.styles[label] for label in shown},
            brought_out=self._rivals(shown),
            controls=(Control("guidance", "Guidance", scales, "one"),),
            table=self._table(),
        )

    def _rivals(self, shown: Sequence[str]) -> tuple[str, ...]:
        """The methods nearest to the reference: those to be told apart. None if there are few."""
        if len(shown) <= _BROUGHT_OUT:
            return ()
        size = abs(self.means).mean(("sampler", "steps", "guidance"))
        return tuple(
            sorted(shown, key=lambda label: float(size.sel({"method": label})))[:_BROUGHT_OUT]
        )

    def _panes(self) -> list[Plot]:
        places = [
            {"sampler": sampler, "guidance": scale}
            for scale in self.means["guidance"].values
            for sampler in self.means["sampler"].values
        ]
        known = [(at, self.means.sel(at).dropna("steps", how="all")) for at in places]
        return [self._pane(at["sampler"], at["guidance"], here) for at, here in known if here.size]

    def _pane(self, sampler: str, scale: float, here: xr.DataArray) -> Plot:
        limit = self.limit
        title = f"{self.measure.name} less that of {self.reference}"
        figure = charts.chart(
            charts.listed_axis("network evaluations", here["steps"].values.tolist(), log=True),
            charts.axis(title, range=[-limit, limit]),
        )
        figure.add_hline(y=0, line={"color": var("soft"), "width": 1})
        errors = self.errors.sel(sampler=sampler, guidance=scale)
        for label in charts.drawn(here, self.styles):
            line = here.sel({"method": label}).dropna("steps")
            noise = errors.sel({"method": label, "steps": line["steps"]})
            charts.add_line(figure, label, self.styles[label], line, noise)
        place = self.results.place(str(sampler), float(scale))
        return Plot(place, charts.bounded(figure), {"guidance": f"{scale:g}"})

    def _table(self) -> DataTable:
        guided, ending = self.results.guided, self.results.ending.replace("-", "_")
        stacked = xr.Dataset({"mean": self.means, "error": self.errors}).stack(
            cell=("sampler", "method", "steps", "guidance")
        )
        rows: list[tuple[Value, ...]] = []
        for cell in stacked.dropna("cell", subset=["mean"]).transpose("cell")["cell"].values:
            sampler, method, steps, scale = cell
            at = stacked.sel(cell=cell)
            numbers = (float(at["mean"]), float(at["error"]))
            rows.append((str(sampler), str(method), int(steps), *[scale] * guided, *numbers))
        columns = (
            *("sampler", "method", "evaluations", *["guidance"] * guided),
            *(f"difference from {self.reference}", "standard error"),
        )
        return DataTable(f"{self.measure.key}_differences{ending}", columns, tuple(rows))
