"""A frozen score network, seen as what samplers and likelihoods need: a prediction at (x_t, t).

A prediction carries the noise estimate ε̂, the features that covariance heads read, and products
with the Jacobian J of ε̂. A network that was trained on another Gaussian path enters as a
`ScoreNetwork` that gives ε̂ on ours (`networks/converted.py`); nothing after it knows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod
from typing import Protocol

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ocm_core.diffusion.basis import Spectrum
from ocm_core.diffusion.schedule import Schedule
from ocm_core.diffusion.score_network import ScoreNetwork, TrunkFeatures
from ocm_core.errors import OcmError
from ocm_core.precision import Precision, set_precision
from ocm_core.shapes import Batch, Labels, OverTime, Times


@dataclass(frozen=True)
class TimeConvention:
    """How the index t = 1 … T becomes the number that a network was trained with."""

    shift: int = 0
    scale: float = 1.0

    def __call__(self, t: Times) -> Float[Tensor, " batch"]:
        return (t - self.shift).to(torch.float32) * self.scale


@dataclass(frozen=True)
class AnyPrediction(ABC):
    """A prediction at (x_t, t), guided or not."""

    x: Batch
    t: Times
    eps: Batch
    learned_variance: Batch | None
    denoiser: Denoiser

    @abstractmethod
    def combine(self, c: Callable[[Prediction], Tensor]) -> Tensor:
        """Evaluate a quantity that is linear in the score, as guidance mixes it."""


class Model(Protocol):
    """Anything that predicts at (x_t, t); samplers never ask what kind of model they hold."""

    @property
    def schedule(self) -> Schedule: ...

    def predict(self, x: Batch, t: float, label: Labels = None) -> AnyPrediction:
        """Predict the noise at (x_t, t)."""


@dataclass(frozen=True)
class Prediction(AnyPrediction):
    """The output of one network at (x_t, t)."""

    label: Labels
    features: TrunkFeatures

    def combine(self, c: Callable[[Prediction], Tensor]) -> Tensor:
        return c(self)

    def head(self, name: str) -> Batch:
        """Return the raw output of the head `name`, whose gradient stays out of the trunk."""
        heads = self.denoiser.heads
        if name not in heads:
            known = ", ".join(sorted(heads)) or "none"
            raise OcmError(
                f"method '{name}' needs a trained head and this model has {known}; "
                "train it (stage `heads`) or name a method that needs none"
            )
        # contiguous: GroupNorm's backward on a CPU crashes on channels-last input without gradient;
        # in x's precision: a head is no part of the trunk's autocast
        features = (part.detach().contiguous().to(self.x.dtype) for part in self.features)
        output: Tensor = heads[name](TrunkFeatures(*features), self.t)
        if output.flatten(1).shape != self.x.flatten(1).shape:
            raise OcmError(
                f"head '{name}' gives {tuple(output.shape[1:])} where the network's input has "
                f"{tuple(self.x.shape[1:])}: it belongs to another network"
            )
        return output.reshape(self.x.shape).to(self.x.dtype)

    def at(self, table: Tensor | None, what: str) -> Tensor:
        """Return `table[t]`, shaped to multiply the batch."""
        if table is None:
            raise OcmError(f"{what} is missing: run the stage that makes it")
        if (found := len(table) - 1) != (end := self.denoiser.schedule.steps):
            raise OcmError(f"{what} has {found} timesteps, the schedule {end}: made for another")
        return table.to(self.x)[self.t].view(-1, *(1,) * (self.x.ndim - 1))

    @property
    def marginal(self) -> tuple[Tensor, Tensor]:
        """ᾱ_t and b_t as factors for the batch."""
        return self.denoiser.schedule.marginal_at(self.t, self.x)

    def vjp(self, v: Batch) -> Batch:
        """Jᵀ v, from a graph that is built once and kept while this prediction lives."""
        x, eps = self._graph
        (product,) = torch.autograd.grad(eps, x, v.to(eps.dtype), retain_graph=True)
        return product.to(self.x.dtype)

    def jacobian(self) -> Float[Tensor, "batch d d"]:
        """J, whose row i is Jᵀ applied to the i-th unit vector."""
        x = self.x
        unit = torch.eye(prod(x.shape[1:]), dtype=x.dtype, device=x.device)
        rows = [self.vjp(e.view(1, *x.shape[1:]).expand_as(x)).flatten(1) for e in unit]
        return torch.stack(rows, dim=1)

    @cached_property
    def _graph(self) -> tuple[Tensor, Tensor]:
        if self.x.requires_grad:  # predicted with a graph, as the training step does
            return self.x, self.eps
        with torch.enable_grad():
            x = self.x.detach().requires_grad_(True)
            return x, self.denoiser.evaluate(x, self.t, self.label)[1]


Forward = Callable[[ScoreNetwork, Batch, Tensor, Labels], tuple[TrunkFeatures, Tensor]]


def forward(
    network: ScoreNetwork, x: Batch, time: Tensor, label: Labels
) -> tuple[TrunkFeatures, Tensor]:
    """Evaluate a network; compiled, it is replaced by its compiled form."""
    return network.evaluate(x, time, label)


@dataclass(frozen=True, repr=False)
class Denoiser:
    """Network, schedule and time convention, with the heads and tables that are at hand."""

    network: ScoreNetwork
    schedule: Schedule
    time: TimeConvention = TimeConvention()
    heads: Mapping[str, nn.Module] = field(default_factory=dict)
    moments: OverTime | None = None  # 1 - Γ_t
    spectra: Mapping[str, Spectrum] = field(default_factory=dict)  # by the name of their basis
    precision: torch.dtype = torch.float32
    forward: Forward = forward

    def __repr__(self) -> str:
        count = sum(parameter.numel() for parameter in self.network.parameters())
        size = f"{count / 1e6:.3g} M parameters, {self.schedule.steps} timesteps"
        return f"{type(self).__name__}({size}, heads: {', '.join(self.heads) or 'none'})"

    def predict(self, x: Batch, t: float | Times, label: Labels = None) -> Prediction:
        """Predict at t = 1 … T; solvers of diffusers also ask for ε̂ between two timesteps."""
        end = self.schedule.steps
        if not isinstance(t, Tensor):  # to look into a tensor is to wait for the device
            if not 1 <= t < end + 1:
                raise OcmError(f"timestep {t} is outside the schedule: expected 1 … {end}")
            t = torch.full((len(x),), t, device=x.device)
        elif t.shape != (len(x),):
            raise OcmError(f"timesteps have shape {tuple(t.shape)}, expected ({len(x)},)")
        features, eps, learned = self.evaluate(x, t, label)
        return Prediction(x, t, eps, learned, self, label, features)

    def spectrum(self, basis: str) -> Spectrum:
        """Return the spectrum in a basis."""
        if basis not in self.spectra:
            raise OcmError(f"no spectrum in the basis '{basis}': run the stage `spectrum`")
        return self.spectra[basis]

    def evaluate(
        self, x: Batch, t: Times, label: Labels
    ) -> tuple[TrunkFeatures, Batch, Batch | None]:
        """Return the trunk's features, ε̂, and the learned variance if there is one."""
        single = self.precision == torch.float32
        with nullcontext() if single else torch.autocast(x.device.type, dtype=self.precision):
            features, raw = self.forward(self.network, x, self.time(t), label)
        output = raw.to(x.dtype)
        if not self.network.learns_variance:
            return features, output, None
        eps, learned = output.chunk(2, dim=1)
        return features, eps, learned


def executed(
    denoiser: Denoiser, *, precision: Precision, channels_last: bool, compiled: bool
) -> Denoiser:
    """Return the denoiser with another execution of its network: only rounding changes."""
    if channels_last:
        denoiser.network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    run = torch.compile(forward) if compiled else forward
    return replace(denoiser, precision=set_precision(precision), forward=run)
