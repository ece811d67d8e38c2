"""c̄_t, which heads may be relative to: a Gaussian's, or the mean of a method's own target.

The latter is told by as many evaluations as some hundred training steps have: a grid of timesteps,
dense where the means bend, and straight lines between them.
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from ocm_core.covariance.learned import RegressionMethod
from ocm_core.diffusion.schedule import Schedule
from ocm_core.progress import Progress
from ocm_core.rng.batches import BatchRng, batches
from ocm_core.schema.block import require
from ocm_core.shapes import OverTime
from ocm_core.training.head_fitting import HeadFitting

DRAWS = 32  # noisy items a timestep
_DENSE, _STRIDE = 30, 10


def gaussian_baseline(schedule: Schedule, variance: float) -> OverTime:
    """c_g = ᾱ v / (ᾱ v + b): c of a Gaussian with the data's variance v."""
    signal = schedule.alpha_bar * variance
    return torch.from_numpy(signal / (signal + schedule.b))


def or_gaussian(estimate: OverTime, gaussian: OverTime) -> OverTime:
    """An estimate that is not positive within its noise cannot be a unit."""
    return torch.where(estimate > 0, estimate, gaussian)


def timesteps(steps: int) -> list[int]:
    """All small t, then every tenth, and the last."""
    dense = min(_DENSE, steps)
    return sorted({*range(1, dense + 1), *range(dense, steps + 1, _STRIDE), steps})


def baselines(
    fitting: HeadFitting,
    kinds: Mapping[str, str],
    variance: float,
    seed: int,
    batch_size: int,
    device: str,
    progress: Progress[int],
) -> tuple[dict[str, OverTime | None], int]:
    """Return c̄_t by method, None where there is none, and how many entries are the Gaussian's."""
    targets = {k: m for k, m in fitting.methods.items() if kinds[k] == "target"}
    chosen = replace(fitting, methods=targets)
    estimates = target_means(chosen, seed, batch_size, device, progress)
    by_moments = [label for label, kind in kinds.items() if kind == "moments"]
    estimates |= {label: require(fitting.denoiser.moments) for label in by_moments}
    replaced = [int((table[1:] <= 0).sum()) for table in estimates.values()]
    gaussian = gaussian_baseline(fitting.denoiser.schedule, variance)
    found = {label: gaussian if kind == "gaussian" else None for label, kind in kinds.items()}
    found |= {label: or_gaussian(table, gaussian) for label, table in estimates.items()}
    return found, max(replaced, default=0)


def target_means(
    fitting: HeadFitting,
    seed: int,
    batch_size: int = DRAWS,
    device: str = "cpu",
    progress: Progress[int] = iter,
) -> dict[str, OverTime]:
    """Return the mean of each method's target over t = 0 … T (entry 0 is 0)."""
    regressions = {k: m for k, m in fitting.methods.items() if isinstance(m, RegressionMethod)}
    if not regressions:
        return {}
    schedule = fitting.denoiser.schedule
    times = timesteps(schedule.steps)
    means = {label: [0.0] for label in regressions}
    for t in progress(times):
        found: dict[str, list[Tensor]] = {label: [] for label in regressions}
        for rows in batches(DRAWS, batch_size):
            rng = BatchRng(seed, t, DRAWS, device, time=t, rows=rows)
            rng.seed_torch()
            at = torch.full((len(rows),), t, device=device)
            batch = fitting.predict(fitting.draw(rng, at))
            for label, method in regressions.items():
                found[label].append(method.target(batch).detach().double().flatten(1))
        for label, targets in found.items():
            means[label].append(float(torch.cat(targets).mean()))
    every, grid = np.arange(schedule.steps + 1), [0, *times]
    return {k: torch.from_numpy(np.interp(every, grid, known)) for k, known in means.items()}
