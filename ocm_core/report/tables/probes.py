"""How many random probes OCM's training target needs: heads that were trained with different M."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ocm_core.report.page.document import DataTable, Value
from ocm_core.report.statistics.head_families import HeadFamilies
from ocm_core.report.statistics.image_results import CellMean, ImageResults
from ocm_core.report.statistics.selections import LIKELIHOOD_SAMPLER

if TYPE_CHECKING:
    from ocm_core.schema.experiment import MethodParams


def probe_counts(methods: Mapping[str, MethodParams], families: HeadFamilies) -> dict[str, int]:
    """The number of probes of every OCM head that differs in it from another of its form."""
    found: dict[str, int] = {}
    for family in families:
        heads = [label for label, kind in family.kinds.items() if kind == "ocm"]
        counts = {label: int(methods[label].options["probes"]) for label in heads}
        if len({*counts.values()}) > 1:
            found |= dict(sorted(counts.items(), key=lambda item: item[1]))
    return found


def introduction(results: ImageResults) -> str:
    return (
        "M is the number of random probes in the target of OCM's training; every M gives an "
        "unbiased one. DDPM; NLL ± its standard error over images."
        + (f" {results.small_print}" if results.has("fid") else "")
    )


def table(results: ImageResults, probes: Mapping[str, int]) -> DataTable:
    samples = _by_place(results.cells("fid") if results.has("fid") else [])
    bounds = _by_place(results.likelihood_cells() if results.has("nll") else [])
    rows: list[tuple[Value, ...]] = []
    for label, count in probes.items():
        places = [key for key in dict.fromkeys([*samples, *bounds]) if key[0] == label]
        for place in sorted(places):
            _, steps, guidance = place
            fid, nll = samples.get(place), bounds.get(place)
            rows.append(
                (
                    *(count, label, steps),
                    *[guidance] * results.guided,
                    *((fid.mean, fid.error) if fid else (None, None)),
                    *((nll.mean, nll.error) if nll else (None, None)),
                )
            )
    columns = (
        *("M", "method", "steps"),
        *["guidance"] * results.guided,
        *(results.distance, "±", "NLL, bits/dim", "± over images"),
    )
    return DataTable("probes", columns, tuple(rows))


def _by_place(cells: list[CellMean]) -> dict[tuple[str, int, float], CellMean]:
    chains = [cell for cell in cells if cell.sampler == LIKELIHOOD_SAMPLER]
    return {(cell.method, cell.steps, cell.guidance): cell for cell in chains}
