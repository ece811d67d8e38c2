"""Denoising score matching: how a score network is trained where there is no published one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import nn

from ocm_core.diffusion.denoiser import Denoiser
from ocm_core.diffusion.gaussian import sum_dims
from ocm_core.shapes import PerSample
from ocm_core.training.batches import Items, diffuse
from ocm_core.training.draws import Draws


@dataclass(frozen=True)
class ScoreMatching:
    """Denoising score matching: E‖ε - ε̂(x_t, t)‖²."""

    denoiser: Denoiser
    items: Items

    @property
    def networks(self) -> Mapping[str, nn.Module]:
        return {"score": self.denoiser.network}

    def losses(self, draws: Draws, rows: slice) -> dict[str, PerSample]:
        noisy = diffuse(self.items, self.denoiser.schedule, draws, rows)
        eps = self.denoiser.predict(noisy.x, noisy.t, noisy.label).eps
        return {"score": sum_dims((noisy.eps - eps) ** 2)}
