"""Classifier-free guidance: ε̂ = ε̂_∅ + w (ε̂_y - ε̂_∅), and the same mix for the covariance.

The Jacobian is linear in ε̂, so c mixes as ε̂ does; using the conditional c alone is the other
sensible choice. The published DiT sampler guides the first three channels only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from ocm_core.diffusion.denoiser import Denoiser, Model, Prediction
from ocm_core.diffusion.schedule import Schedule
from ocm_core.diffusion.score_network import TrunkFeatures
from ocm_core.errors import OcmError
from ocm_core.shapes import Batch, Labels, Times


@dataclass(frozen=True)
class Guidance:
    """A guidance scale w, and what it acts on; w = 1 is no guidance."""

    scale: float = 1.0
    channels: int | None = None  # the first ones; None: all
    covariance: Literal["guided", "conditional"] = "guided"

    def apply(self, model: Model) -> Model:
        """Return the model with guidance; for a scale of 1, the model itself."""
        if self.scale == 1.0:
            return model
        if not isinstance(model, Denoiser) or (null := model.network.null_label) is None:
            raise OcmError(f"guidance {self.scale} needs a network with a null class; use 1.0")
        return GuidedDenoiser(model, self, null)

    def weight(self, x: Batch) -> Tensor:
        """Return w on the guided channels, 1 (the conditional value) on the others."""
        weight = x.new_full((1, x.shape[1], *(1,) * (x.ndim - 2)), self.scale)
        if self.channels is not None:
            weight[:, self.channels :] = 1.0
        return weight


UNGUIDED = Guidance()


@dataclass(frozen=True)
class GuidedPrediction:
    """A prediction with the label and one without, mixed."""

    conditional: Prediction
    unconditional: Prediction
    guidance: Guidance

    @property
    def x(self) -> Batch:
        return self.conditional.x

    @property
    def t(self) -> Times:
        return self.conditional.t

    @property
    def eps(self) -> Batch:
        return self._mix(self.unconditional.eps, self.conditional.eps)

    @property
    def learned_variance(self) -> Batch | None:
        return self.conditional.learned_variance

    def combine(self, c: Callable[[Prediction], Tensor]) -> Tensor:
        conditional = c(self.conditional)
        if self.guidance.covariance == "conditional":
            return conditional
        return self._mix(c(self.unconditional), conditional)

    def _mix(self, unconditional: Tensor, conditional: Tensor) -> Tensor:
        """Element by element; of a matrix (batch, D, D), row by row, as ε̂'s Jacobian mixes."""
        weight = self.guidance.weight(self.x).expand(1, *self.x.shape[1:])
        rows = weight.flatten(1).unsqueeze(-1)
        is_matrix = unconditional.shape[1:] == (rows.shape[1], rows.shape[1])
        return unconditional + (rows if is_matrix else weight) * (conditional - unconditional)


@dataclass(frozen=True)
class GuidedDenoiser:
    """Predicts with and without the label in one doubled batch."""

    denoiser: Denoiser
    guidance: Guidance
    null_label: int

    @property
    def schedule(self) -> Schedule:
        return self.denoiser.schedule

    def predict(self, x: Batch, t: float | Times, label: Labels = None) -> GuidedPrediction:
        if label is None:
            raise OcmError("guidance needs class labels: pass `label`, or sample without guidance")
        x = x.detach()  # each branch makes its own graph: products pass through half of the batch
        both = self.denoiser.predict(
            torch.cat([x, x]),
            torch.cat([t, t]) if isinstance(t, Tensor) else t,
            torch.cat([label, torch.full_like(label, self.null_label)]),
        )
        first, second = slice(None, len(x)), slice(len(x), None)
        return GuidedPrediction(_part(both, first), _part(both, second), self.guidance)


def _part(both: Prediction, rows: slice) -> Prediction:
    learned = both.learned_variance
    return Prediction(
        denoiser=both.denoiser,
        x=both.x[rows],
        t=both.t[rows],
        label=None if both.label is None else both.label[rows],
        features=TrunkFeatures(*(part[rows] for part in both.features)),
        eps=both.eps[rows],
        learned_variance=None if learned is None else learned[rows],
    )
