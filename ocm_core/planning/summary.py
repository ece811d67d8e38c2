"""The cost of experiments for the terminal, as JSON, and in a line for the doctor."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from ocm_core.checkpoints.registry import CHECKPOINTS
from ocm_core.errors import OcmError, unknown
from ocm_core.params.resolved import load
from ocm_core.planning import tables
from ocm_core.planning.gpus import A100, GPUS, H100, PRECISIONS, Utilisation, time
from ocm_core.planning.work import Workload


def workloads(names: Sequence[str]) -> list[Workload]:
    """Of the paper's experiments: all of them if none is named."""
    for name in names:
        if name not in CHECKPOINTS:
            raise OcmError(f"experiment with a published network: {unknown(name, CHECKPOINTS)}")
    return [Workload.of(load(name)) for name in names or CHECKPOINTS]


def terminal(found: Sequence[Workload], use: Utilisation) -> str:
    parts = [
        "computed, not measured: "
        f"{use.peak:.0%} of the peak and {use.bandwidth:.0%} of the bandwidth are assumptions",
        tables.totals(found, use).terminal(),
        tables.memory(found).terminal(),
    ]
    for workload in found:
        parts += [
            workload.experiment.name,
            tables.units(workload, use).terminal(),
            tables.stages(workload, use).terminal(),
        ]
    return "\n\n".join(parts)


def as_json(found: Sequence[Workload], use: Utilisation) -> str:
    experiments = {w.experiment.name: _experiment(w, use) for w in found}
    return json.dumps({"utilisation": asdict(use), "experiments": experiments}, indent=2)


def _experiment(workload: Workload, use: Utilisation) -> dict[str, Any]:
    return {
        "network": asdict(workload.units),
        "stages": [
            {
                **asdict(work),
                "operations": work.gpu.operations,
                "hours": {
                    gpu.name: {p: time(work.gpu, gpu, p, use).hours for p in PRECISIONS}
                    for gpu in GPUS
                },
            }
            for work in workload.stages()
        ],
    }


def hours(name: str) -> dict[str, float] | None:
    """Of a whole experiment in float32, by GPU; None where the network is not published."""
    if name not in CHECKPOINTS:
        return None
    work = Workload.of(load(name)).stages()
    return {
        gpu.name: sum(time(w.gpu, gpu, "float32", Utilisation()).hours for w in work)
        for gpu in (A100, H100)
    }
