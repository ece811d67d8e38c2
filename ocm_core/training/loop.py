"""The one training loop: AdamW, moving average, accumulation, exact resume, one or many processes.

Everything random is a function of (seed, iteration), so that the state is what the optimiser holds
and no more: a run killed at any moment continues to the same bytes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from itertools import islice
from pathlib import Path

import torch
from torch import Tensor

from ocm_core.distributed import Rank, current_rank
from ocm_core.precision import set_precision
from ocm_core.prefetch import moved, pinned, prefetch
from ocm_core.progress import Progress
from ocm_core.rng.batches import BatchRng
from ocm_core.schema.experiment import OptimiserParams
from ocm_core.training.divergence import DivergenceMonitor
from ocm_core.training.objective import Draws, Objective
from ocm_core.training.state import TrainingState, saved_at

_CURVE_POINTS = 200
_LOOK_EVERY = 100  # iterations, at most, until a run that has diverged is stopped


def learning_rate(settings: OptimiserParams, iteration: int) -> float:
    """Return the learning rate at an iteration."""
    if settings.decay == "constant":
        return settings.learning_rate
    return settings.learning_rate * 0.5 * (1 + math.cos(math.pi * iteration / settings.iterations))


def fit(
    objective: Objective[Draws],
    settings: OptimiserParams,
    folder: Path,
    *,
    device: str = "cpu",
    progress: Progress[int] = iter,
    after_each: Callable[[TrainingState], None] | None = None,
) -> TrainingState:
    """Train to the end, from the checkpoint in `folder` if there is one.

    `after_each` sees the state of every iteration, also once more those since the checkpoint.
    """
    rank = current_rank()
    set_precision(settings.precision)
    state = TrainingState.start(objective.networks, settings)
    state.resume(folder)
    watch = DivergenceMonitor(state, folder, device)
    with (
        _resumable(state, settings, folder),
        closing(_draws(objective, settings, state.iteration, rank, device)) as draws,
    ):
        for iteration in progress(range(state.iteration, settings.iterations)):
            watch.see(iteration, _step(objective, settings, state, draws, rank, device))
            state.update_average(settings.ema)
            state.iteration = iteration + 1
            saves = state.iteration % settings.checkpoint_every == 0
            shows = state.iteration % max(1, settings.iterations // _CURVE_POINTS) == 0
            if saves or shows or state.iteration % _LOOK_EVERY == 0:
                watch.look()
            if shows:
                state.record(state.smoothed)
            if after_each is not None:
                after_each(state)
            if saves and rank.is_first:
                state.save(folder)
        watch.look()
    return state


@contextmanager
def _resumable(state: TrainingState, settings: OptimiserParams, folder: Path) -> Iterator[None]:
    """A run that is interrupted says where it goes on."""
    try:
        yield
    except KeyboardInterrupt:
        saved = saved_at(folder) or 0
        raise KeyboardInterrupt(f"resumes at iteration {saved} of {settings.iterations}") from None


def _draws(
    objective: Objective[Draws], settings: OptimiserParams, first: int, rank: Rank, device: str
) -> Generator[tuple[BatchRng, Draws]]:
    """This process's micro-batches from the iteration `first` on, each made ahead of its use."""
    batches = (
        BatchRng(settings.seed, iteration, settings.batch_size, rows=rows)
        for iteration in range(first, settings.iterations)
        for rows in rank.rows(settings.batch_size, settings.accumulate)
    )
    return prefetch(lambda rng: (rng, pinned(objective.draw(rng), device)), batches)


def _step(
    objective: Objective[Draws],
    settings: OptimiserParams,
    state: TrainingState,
    draws: Iterator[tuple[BatchRng, Draws]],
    rank: Rank,
    device: str,
) -> dict[str, Tensor]:
    """One update: the mean over the whole batch, gathered over micro-batches and processes."""
    state.optimiser.zero_grad(set_to_none=True)
    totals = {name: torch.zeros((), device=device) for name in objective.networks}
    for rng, drawn in islice(draws, settings.accumulate):
        rng.seed_torch()
        losses = objective.losses_on(moved(drawn, device))
        total = torch.stack([loss.sum() for loss in losses.values()]).sum() / settings.batch_size
        torch.autograd.backward(total)
        for name, loss in losses.items():
            totals[name] += loss.detach().sum() / settings.batch_size
    gradients = (p.grad for p in state.parameters() if p.grad is not None)
    rank.total([*totals.values(), *gradients])
    for group in state.optimiser.param_groups:
        group["lr"] = learning_rate(settings, state.iteration)
    state.optimiser.step()
    return totals
