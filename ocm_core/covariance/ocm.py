"""Optimal covariance matching: c = 1 + h, h ≈ b_t diag H = -√b_t diag J, from the score alone.

The target -√b_t v ⊙ (Jᵀ v) needs no data beyond x_t: one expectation over v stands outside the
square, so that any number of probes is unbiased.
"""

from typing import Annotated

from pydantic import Field
from torch import Tensor

from ocm_core.covariance.interface import Look, Profile, c_from_jacobian
from ocm_core.covariance.learned import RegressionMethod, TrainingBatch
from ocm_core.diffusion.denoiser import Prediction


class Method(RegressionMethod):
    profile = Profile(
        "a head fitted to random probes of the score's Jacobian",
        "c = 1 + h(xₜ), h ≈ -√bₜ E[v ⊙ Jᵀv] = -√bₜ diag J",
        line=Look("vermillion", "circle", width=4.0),
    )
    probes: Annotated[int, Field(ge=1)] = 1

    @property
    def training_probes(self) -> int:  # type: ignore[override]
        return self.probes

    def published(self, raw: Tensor, prediction: Prediction) -> Tensor:
        return 1.0 + raw

    def target(self, batch: TrainingBatch) -> Tensor:
        return c_from_jacobian(batch.prediction, batch.diagonal(self.probes))
