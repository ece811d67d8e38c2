"""The losses of a run as they come: smoothed, and watched for divergence, on the device.

Nothing of it is read before somebody looks, so that an iteration waits for no other; the first bad
one is remembered.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor

from ocm_core.errors import OcmError
from ocm_core.training.state import TrainingState, saved_at, state_file

_SMOOTHING = 0.98
_DIVERGED = 1e3


class DivergenceMonitor:
    """Stops a run whose loss is no number, or has left all proportion."""

    def __init__(self, state: TrainingState, folder: Path, device: str) -> None:
        self.state, self.folder = state, folder
        self.names = list(state.networks)
        like = torch.zeros((), device=device, dtype=_widest(device))
        self.smoothed, self.lowest = (
            like.new_tensor([known[name] for name in self.names]) if known else None
            for known in (state.smoothed, state.lowest)
        )
        self.bad_iteration = like.new_full((len(self.names),), -1.0)
        self.bad_loss = torch.zeros_like(self.bad_iteration)

    @torch.no_grad()
    def see(self, iteration: int, losses: Mapping[str, Float[Tensor, ""]]) -> None:
        """Take in the losses of an iteration."""
        loss = torch.stack([losses[name] for name in self.names]).to(self.bad_loss)
        before = loss if self.smoothed is None else self.smoothed
        self.smoothed = _SMOOTHING * before + (1 - _SMOOTHING) * loss
        self.lowest = torch.minimum(
            self.smoothed if self.lowest is None else self.lowest, self.smoothed
        )
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
        bad = [place for place, iteration in enumerate(at) if iteration >= 0]
        if bad:
            worst = min(bad, key=at.__getitem__)
            raise self._diverged(self.names[worst], int(at[worst]), loss[worst])
        self.state.smoothed = dict(zip(self.names, smoothed, strict=True))
        self.state.lowest = dict(zip(self.names, lowest, strict=True))

    def _diverged(self, name: str, iteration: int, loss: float) -> OcmError:
        what = f"grew {_DIVERGED:.0f}-fold" if math.isfinite(loss) else "is not a finite number"
        saved = saved_at(self.folder)
        good = f"{state_file(self.folder)} (iteration {saved})" if saved else "none yet"
        return OcmError(
            f"training of '{name}' diverged at iteration {iteration}: loss {loss:.6g} {what}. "
            f"Last good checkpoint: {good}. Lower the learning rate or use float32"
        )


def _widest(device: str) -> torch.dtype:
    """float64, where the device has it."""
    return torch.float32 if torch.device(device).type == "mps" else torch.float64
