"""What steps between timesteps cost, by method, and the optimal chains that follow from it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ocm_core.diffusion.chains import OptimalChains, StepCosts
from ocm_core.io.atomic import replacing

if TYPE_CHECKING:
    from ocm_core.pipeline.job import Job

COSTS_FILE = "step_costs.npz"


def save_costs(file: Path, costs: Mapping[str, StepCosts]) -> None:
    """All methods share the grid and the prior's terms."""
    first = next(iter(costs.values()))
    tables: dict[str, Any] = {f"steps.{label}": table.steps for label, table in costs.items()}
    with replacing(file) as temporary, temporary.open("wb") as stream:
        np.savez(stream, timesteps=np.array(first.timesteps), ends=first.ends, **tables)


def load_costs(file: Path) -> dict[str, StepCosts]:
    with np.load(file) as tables:
        times, ends = tuple(tables["timesteps"].tolist()), np.array(tables["ends"])
        return {
            name.removeprefix("steps."): StepCosts(times, np.array(tables[name]), ends)
            for name in tables.files
            if name.startswith("steps.")
        }


def optimal_chains(job: Job, score: str) -> OptimalChains:
    """By method; none where the job does not read any."""
    folder = job.inputs.get(f"chains/{score}")
    if folder is None:
        return {}
    return {label: costs.optimal() for label, costs in load_costs(folder / COSTS_FILE).items()}
