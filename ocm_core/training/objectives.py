"""What is fitted: a score network by denoising, or covariance heads on a frozen one.

An objective gives, for one micro-batch, the loss per sample of each network that is trained. Heads
do not share parameters, so that training several at once equals training each alone, while one
pass of the trunk serves them all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from ocm_core.covariance._head import LearnedMethod, Noised
from ocm_core.diffusion.denoiser import Denoiser
from ocm_core.diffusion.gaussian import PerSample, sum_dims
from ocm_core.likelihood.decoder import Decoder
from ocm_core.training.draws import Draws

Batch = Float[Tensor, "batch *dims"]


@dataclass(frozen=True)
class Items:
    """A set in memory: x_0, and labels where there are any."""

    x0: Batch
    labels: Int[Tensor, " item"] | None = None

    def batch(self, draws: Draws) -> tuple[Batch, Int[Tensor, " batch"] | None]:
        rows = torch.from_numpy(draws.items(len(self.x0)))
        labels = None if self.labels is None else self.labels[rows].to(draws.device)
        return self.x0[rows].to(draws.device), labels


class Objective(Protocol):
    """What the training loop needs to know."""

    @property
    def networks(self) -> Mapping[str, nn.Module]: ...

    def losses(self, draws: Draws, rows: slice) -> dict[str, PerSample]: ...


@dataclass(frozen=True)
class Diffused:
    """A noisy micro-batch: x_t = √ᾱ_t x_0 + √b_t ε."""

    x0: Batch
    label: Int[Tensor, " batch"] | None
    t: Int[Tensor, " batch"]
    eps: Batch
    x: Batch


def diffuse(items: Items, denoiser: Denoiser, draws: Draws, rows: slice) -> Diffused:
    schedule = denoiser.schedule
    x0, label = items.batch(draws)
    t, eps = draws.times(schedule.steps), draws.normals(tuple(x0.shape[1:]))
    signal = schedule.at(schedule.alpha_bar, t, x0).sqrt()
    x = signal * x0 + schedule.at(schedule.b, t, x0).sqrt() * eps
    return Diffused(x0[rows], None if label is None else label[rows], t[rows], eps[rows], x[rows])


@dataclass(frozen=True)
class ScoreMatching:
    """Denoising score matching: E‖ε - ε̂(x_t, t)‖²."""

    denoiser: Denoiser
    items: Items

    @property
    def networks(self) -> Mapping[str, nn.Module]:
        return {"score": self.denoiser.network}

    def losses(self, draws: Draws, rows: slice) -> dict[str, PerSample]:
        noisy = diffuse(self.items, self.denoiser, draws, rows)
        eps = self.denoiser.predict(noisy.x, noisy.t, noisy.label).eps
        return {"score": sum_dims((noisy.eps - eps) ** 2)}


@dataclass(frozen=True)
class HeadFitting:
    """Each method's own loss on the features of the frozen trunk."""

    denoiser: Denoiser
    methods: Mapping[str, LearnedMethod]
    items: Items
    decoder: Decoder

    @property
    def networks(self) -> Mapping[str, nn.Module]:
        return {label: self.denoiser.heads[label] for label in self.methods}

    def losses(self, draws: Draws, rows: slice) -> dict[str, PerSample]:
        noisy = diffuse(self.items, self.denoiser, draws, rows)
        batch = self.look(noisy, draws, rows)
        return {label: method.loss(batch) for label, method in self.methods.items()}

    def look(self, noisy: Diffused, draws: Draws, rows: slice) -> Noised:
        """One pass of the trunk, with a graph to x_t only if some target needs the Jacobian."""
        graph = any(method.needs_jacobian for method in self.methods.values())
        with torch.set_grad_enabled(graph):
            x = noisy.x.detach().requires_grad_(graph)
            prediction = self.denoiser.predict(x, noisy.t, noisy.label)
        return Noised(
            prediction=prediction,
            x0=noisy.x0,
            eps=noisy.eps,
            probe=lambda: draws.signs(tuple(noisy.x0.shape[1:]))[rows],
            decoder=self.decoder,
        )


def freeze(denoiser: Denoiser) -> Denoiser:
    """In evaluation mode, and closed to gradients."""
    network = denoiser.network.eval().requires_grad_(False)
    return replace(denoiser, network=network)
