"""How many probes OCM's training target needs: heads that were fitted with different M."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ocm_core.report.page.document import Table, Value
from ocm_core.report.statistics.image_results import Cell, Evidence
from ocm_core.report.statistics.selections import LIKELIHOOD_SAMPLER

if TYPE_CHECKING:
    from ocm_core.schema.experiment import MethodParams


def probes_of(methods: Mapping[str, MethodParams]) -> dict[str, int]:
    """The number of probes of every OCM head, if there are heads to compare."""
    found = {
        m: int(method.options["probes"]) for m, method in methods.items() if method.kind == "ocm"
    }
    return found if len(found) > 1 else {}


def introduction(evidence: Evidence) -> str:
    return (
        "M is the number of random probes in the target of OCM's training; every M gives an "
        "unbiased one. DDPM; NLL ± its standard error over images."
        + (f" {evidence.small_print}" if evidence.has("fid") else "")
    )


def table(evidence: Evidence, probes: Mapping[str, int]) -> Table:
    samples = _by_place(evidence.cells("fid") if evidence.has("fid") else [])
    bounds = _by_place(evidence.likelihood_cells() if evidence.has("nll") else [])
    rows: list[tuple[Value, ...]] = []
    for label, count in sorted(probes.items(), key=lambda item: item[1]):
        places = [key for key in dict.fromkeys([*samples, *bounds]) if key[0] == label]
        for place in sorted(places):
            _, steps, guidance = place
            fid, nll = samples.get(place), bounds.get(place)
            rows.append(
                (
                    *(count, label, steps),
                    *[guidance] * evidence.guided,
                    *((fid.mean, fid.error) if fid else (None, None)),
                    *((nll.mean, nll.error) if nll else (None, None)),
                )
            )
    columns = (
        *("M", "method", "steps"),
        *["guidance"] * evidence.guided,
        *(evidence.distance, "± over seeds", "NLL, bits/dim", "± over images"),
    )
    return Table("probes", columns, tuple(rows))


def _by_place(cells: list[Cell]) -> dict[tuple[str, int, float], Cell]:
    chains = [cell for cell in cells if cell.sampler == LIKELIHOOD_SAMPLER]
    return {(cell.method, cell.steps, cell.guidance): cell for cell in chains}
