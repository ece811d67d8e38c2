"""The one training loop: AdamW, moving average, accumulation, exact resume, one or many processes.

Everything random is a function of (seed, iteration): a run killed at any moment continues to the
same bytes. Losses are smoothed and watched on the device, and read only when somebody looks.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Generic, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ocm_core.distributed import Rank, current_rank
from ocm_core.errors import OcmError
from ocm_core.precision import set_precision
from ocm_core.prefetch import moved, pinned, prefetch
from ocm_core.progress import Progress
from ocm_core.rng.batches import BatchRng
from ocm_core.schema.experiment import OptimiserParams
from ocm_core.shapes import PerSample
from ocm_core.training.state import TrainingState, saved_at, state_file

_CURVE_POINTS = 200
_LOOK_EVERY = 100  # iterations, at most, until a run that has diverged is stopped
_SMOOTHING = 0.98
_DIVERGED = 1e3

Draws = TypeVar("Draws")  # tensors, in tuples of any depth


class Objective(ABC, Generic[Draws]):
    """Networks to train, with a loss for each."""

    @property
    @abstractmethod
    def networks(self) -> Mapping[str, nn.Module]:
        """Return the networks to train, by name."""

    @abstractmethod
    def draw(self, rng: BatchRng) -> Draws:
        """Draw a micro-batch; another thread does so ahead of its use."""

    @abstractmethod
    def losses_on(self, drawn: Draws) -> dict[str, PerSample]:
        """Return each network's loss on each sample."""

    def losses(self, rng: BatchRng) -> dict[str, PerSample]:
        """Draw a micro-batch and return the losses on it."""
        return self.losses_on(self.draw(rng))


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
    """Train to the end, from the checkpoint in `folder` if any; `after_each` sees each state."""
    rank = current_rank()
    set_precision(settings.precision)
    state = TrainingState.start(objective.networks, settings)
    state.resume(folder)
    watch = DivergenceMonitor(state, folder, device)
    batches = (
        BatchRng(settings.seed, iteration, settings.batch_size, rows=rows)
        for iteration in range(state.iteration, settings.iterations)
        for rows in rank.rows(settings.batch_size, settings.accumulate)
    )
    ahead = prefetch(lambda rng: (rng, pinned(objective.draw(rng), device)), batches)
    try:
        with closing(ahead) as draws:
            for iteration in progress(range(state.iteration, settings.iterations)):
                watch.see(iteration, _step(objective, settings, state, draws, rank, device))
                state.update_average(settings.ema)
                state.iteration = iteration + 1
                saves = state.iteration % settings.checkpoint_every == 0
                shows = state.iteration % max(1, settings.iterations // _CURVE_POINTS) == 0
                if saves or shows or state.iteration % _LOOK_EVERY == 0:
                    watch.look()
                if shows:
                    state.curve.append({"iteration": state.iteration, **state.smoothed})
                if after_each is not None:
                    after_each(state)
                if saves and rank.is_first:
                    state.save(folder)
            watch.look()
    except KeyboardInterrupt:
        saved = saved_at(folder) or 0
        raise KeyboardInterrupt(f"resumes at iteration {saved} of {settings.iterations}") from None
    return state


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
    gradients = (p.grad for p in state.parameters.values() if p.grad is not None)
    rank.total([*totals.values(), *gradients])
    for group in state.optimiser.param_groups:
        group["lr"] = learning_rate(settings, state.iteration)
    state.optimiser.step()
    return totals


class DivergenceMonitor:
    """Stops a run whose loss is no number, or has left all proportion."""

    def __init__(self, state: TrainingState, folder: Path, device: str) -> None:
        self.state, self.folder = state, folder
        self.names = list(state.networks)
        widest = torch.float32 if torch.device(device).type == "mps" else torch.float64
        like = torch.zeros((), device=device, dtype=widest)
        self.smoothed, self.lowest = (
            like.new_tensor([known[name] for name in self.names]) if known else None
            for known in (state.smoothed, state.lowest)
        )
        self.bad_iteration = like.new_full((len(self.names),), -1.0)
        self.bad_loss = torch.zeros_like(self.bad_iteration)

    @torch.no_grad()
    def see(self, iteration: int, losses: Mapping[str, Float[Tensor, ""]]) -> None:
        loss = torch.stack([losses[name] for name in self.names]).to(self.bad_loss)
        before = loss if self.smoothed is None else self.smoothed
        self.smoothed = _SMOOTHING * before + (1 - _SMOOTHING) * loss
        lowest = self.smoothed if self.lowest is None else self.lowest
        self.lowest = torch.minimum(lowest, self.smoothed)
        limit = self.lowest + _DIVERGED * self.lowest.abs().clamp(min=1.0)
        bad = ~torch.isfinite(loss) | (self.smoothed > limit)
        first = bad & (self.bad_iteration < 0)
        self.bad_iteration = torch.where(first, iteration, self.bad_iteration)
        self.bad_loss = torch.where(first, loss, self.bad_loss)

    def look(self) -> None:
        """Tell the state how it goes, or stop the run; this waits for the device."""
        if self.smoothed is None or self.lowest is None:
            return
        seen = (self.bad_iteration, self.bad_loss, self.smoothed, self.lowest)
        at, loss, smoothed, lowest = torch.stack(seen).tolist()
        if bad := [place for place, iteration in enumerate(at) if iteration >= 0]:
            worst, saved = min(bad, key=at.__getitem__), saved_at(self.folder)
            finite = math.isfinite(loss[worst])
            what = f"grew {_DIVERGED:.0f}-fold" if finite else "is not a finite number"
            good = f"{state_file(self.folder)} (iteration {saved})" if saved else "none yet"
            raise OcmError(
                f"training of '{self.names[worst]}' diverged at iteration {int(at[worst])}: "
                f"loss {loss[worst]:.6g} {what}. Last good checkpoint: {good}. Lower the learning "
                "rate or use float32"
            )
        self.state.smoothed = dict(zip(self.names, smoothed, strict=True))
        self.state.lowest = dict(zip(self.names, lowest, strict=True))
