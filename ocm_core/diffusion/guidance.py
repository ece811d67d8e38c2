"""Classifier-free guidance: ε̂ = ε̂_∅ + w (ε̂_y - ε̂_∅), and the same mix for the covariance.

The Jacobian is linear in ε̂, so c mixes as ε̂ does; using the conditional c alone is the other
sensible choice. The published DiT sampler guides the first three channels only.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from ocm_core.diffusion.denoiser import AnyPrediction, Denoiser, Model, Prediction
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

    def mix(self, unconditional: Tensor, conditional: Tensor, x: Batch) -> Tensor:
        """Mix element by element; a matrix (batch, D, D) row by row, as ε̂'s Jacobian mixes."""
        weight = x.new_full((1, *x.shape[1:]), self.scale)
        if self.channels is not None:
            weight[:, self.channels :] = 1.0  # the conditional value
        rows = weight.flatten(1).unsqueeze(-1)
        is_matrix = unconditional.shape[1:] == (rows.shape[1], rows.shape[1])
        return unconditional + (rows if is_matrix else weight) * (conditional - unconditional)


UNGUIDED = Guidance()


@dataclass(frozen=True)
class GuidedPrediction(AnyPrediction):
    """A prediction with the label and one without, mixed."""

    conditional: Prediction
    unconditional: Prediction
    guidance: Guidance

    def combine(self, c: Callable[[Prediction], Tensor]) -> Tensor:
        conditional = c(self.conditional)
        if self.guidance.covariance == "conditional":
            return conditional
        return self.guidance.mix(c(self.unconditional), conditional, self.x)


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
        labels = torch.cat([label, torch.full_like(label, self.null_label)])
        times = torch.cat([t, t]) if isinstance(t, Tensor) else t
        both = self.denoiser.predict(torch.cat([x, x]), times, labels)
        learned = both.learned_variance
        conditional, unconditional = (
            Prediction(
                both.x[rows],
                both.t[rows],
                both.eps[rows],
                None if learned is None else learned[rows],
                both.denoiser,
                labels[rows],
                TrunkFeatures(*(part[rows] for part in both.features)),
            )
            for rows in (slice(None, len(x)), slice(len(x), None))
        )
        eps = self.guidance.mix(unconditional.eps, conditional.eps, x)
        seen = (conditional.x, conditional.t, eps, conditional.learned_variance, self.denoiser)
        return GuidedPrediction(*seen, conditional, unconditional, self.guidance)
