"""The one training loop: AdamW, moving average, accumulation, exact resume, one or many processes.

Everything random is a function of (seed, iteration), so that the state is what the optimiser holds
and no more: a run killed at any moment continues to the same bytes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

import torch
from torch import nn

from ocm_core.distributed import Rank, current_rank
from ocm_core.errors import OcmError
from ocm_core.progress import Progress
from ocm_core.rng.batches import BatchRng
from ocm_core.schema.experiment import OptimiserParams
from ocm_core.shapes import PerSample
from ocm_core.training.state import TrainingState

_CURVE_POINTS = 200
_SMOOTHING = 0.98
_DIVERGED = 1e3


class Objective(Protocol):
    """What a training loop needs: networks, and the loss per sample of each on a micro-batch."""

    @property
    def networks(self) -> Mapping[str, nn.Module]: ...

    def losses(self, rng: BatchRng, rows: slice) -> dict[str, PerSample]: ...


def learning_rate(settings: OptimiserParams, iteration: int) -> float:
    if settings.decay == "constant":
        return settings.learning_rate
    return settings.learning_rate * 0.5 * (1 + math.cos(math.pi * iteration / settings.iterations))


def fit(
    objective: Objective,
    settings: OptimiserParams,
    folder: Path,
    *,
    device: str = "cpu",
    progress: Progress[int] = iter,
) -> TrainingState:
    """Train to the end, from the checkpoint in `folder` if there is one."""
    rank = current_rank()
    state = TrainingState.start(objective.networks, settings)
    state.resume(folder)
    watch = _Watch(state, folder)
    for iteration in progress(range(state.iteration, settings.iterations)):
        losses = _step(objective, settings, state, rank, device)
        watch.check(iteration, losses)
        state.update_average(settings.ema)
        state.iteration = iteration + 1
        if state.iteration % max(1, settings.iterations // _CURVE_POINTS) == 0:
            state.record(watch.smoothed)
        if state.iteration % settings.checkpoint_every == 0 and rank.is_first:
            state.save(folder)
    return state


def _step(
    objective: Objective, settings: OptimiserParams, state: TrainingState, rank: Rank, device: str
) -> dict[str, float]:
    """One update: the mean over the whole batch, gathered over micro-batches and processes."""
    state.optimiser.zero_grad(set_to_none=True)
    totals = {name: torch.zeros((), device=device) for name in objective.networks}
    for rows in rank.rows(settings.batch_size, settings.accumulate):
        rng = BatchRng(settings.seed, state.iteration, settings.batch_size, device)
        rng.seed_torch(rows.start)
        losses = objective.losses(rng, rows)
        total = torch.stack([loss.sum() for loss in losses.values()]).sum() / settings.batch_size
        torch.autograd.backward(total)
        for name, loss in losses.items():
            totals[name] += loss.detach().sum() / settings.batch_size
    rank.total(totals.values())
    rank.total(p.grad for p in state.parameters() if p.grad is not None)
    for group in state.optimiser.param_groups:
        group["lr"] = learning_rate(settings, state.iteration)
    state.optimiser.step()
    return {name: float(value) for name, value in totals.items()}


class _Watch:
    """Stops a run whose loss is no number, or has left all proportion."""

    def __init__(self, state: TrainingState, folder: Path) -> None:
        self.state, self.folder = state, folder
        self.smoothed = dict(state.smoothed)
        self.lowest = dict(state.lowest)

    def check(self, iteration: int, losses: dict[str, float]) -> None:
        for name, loss in losses.items():
            if not math.isfinite(loss):
                raise self._diverged(name, iteration, loss, "is not a finite number")
            before = self.smoothed.get(name, loss)
            smoothed = self.smoothed[name] = _SMOOTHING * before + (1 - _SMOOTHING) * loss
            lowest = self.lowest[name] = min(self.lowest.get(name, smoothed), smoothed)
            if smoothed > lowest + _DIVERGED * max(abs(lowest), 1.0):
                raise self._diverged(name, iteration, loss, f"grew {_DIVERGED:.0f}-fold")
        self.state.smoothed, self.state.lowest = dict(self.smoothed), dict(self.lowest)

    def _diverged(self, name: str, iteration: int, loss: float, what: str) -> OcmError:
        saved = self.state.saved_at(self.folder)
        good = f"{self.state.path(self.folder)} (iteration {saved})" if saved else "none yet"
        return OcmError(
            f"training of '{name}' diverged at iteration {iteration}: loss {loss:.6g} {what}. "
            f"Last good checkpoint: {good}. Lower the learning rate or use float32"
        )
