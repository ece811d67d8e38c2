"""Methods that learn c with a head: what the raw output stands for, and the regression loss.

Each such method has a random target whose mean given x_t is c; the head is fitted to it by least
squares. As published, the raw output is method-specific (h for `ocm`, E[ε²] for `sn`, the residual
for `npr`). Relative to a baseline c̄_t it is c = link(r, c̄_t), zero output meaning the baseline,
and errors are measured in a unit that grows with c̄_t: c spans four orders of magnitude over t. With
a score that is known or preconditioned the target's noise goes with c̄_t (`own`); the Jacobian of a
plain network is noisier than that at large t, and √c̄_t is the better unit there (`root`).
"""

from __future__ import annotations

from abc import abstractmethod
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import e, log
from typing import ClassVar, Literal, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from ocm_core.covariance.interface import CovarianceMethod, PosteriorMethod
from ocm_core.diffusion.basis import Basis
from ocm_core.diffusion.denoiser import Prediction
from ocm_core.diffusion.gaussian import Decoder, sum_dims
from ocm_core.diffusion.score_network import TrunkFeatures, last_layer
from ocm_core.errors import OcmError
from ocm_core.shapes import Batch, OverTime, PerSample, Times


@dataclass(frozen=True)
class TrainingBatch:
    """One training batch: x_t = √ᾱ_t x_0 + √b_t ε, what the network says of it, and ±1 probes.

    Every method reads the first of the same probes: what it learns does not depend on which others
    learn beside it, and a product with the Jacobian is computed once for all of them.
    """

    prediction: Prediction
    x0: Batch
    eps: Batch
    decoder: Decoder
    probes: tuple[Batch, ...] = ()

    @property
    def predicted_eps(self) -> Batch:
        return self.prediction.eps.detach()

    def diagonal(self, probes: int, basis: Basis | None = None) -> Batch:
        """mean_m v_m ⊙ (Jᵀ v_m) over the first so many probes, unbiased for diag J; or UᵀJU."""
        if probes > len(self.probes):
            said = f"{probes} probes asked for and {len(self.probes)} drawn"
            raise ValueError(f"{said}: a method's `training_probes` says how many its loss reads")
        known = self._products[basis]
        for v in self.probes[len(known) : probes]:
            turned = v if basis is None else basis.combine(v)
            product = self.prediction.vjp(turned)
            known.append(v * (product if basis is None else basis.coefficients(product).view_as(v)))
        return sum(known[:probes], torch.zeros_like(self.prediction.x)) / probes

    @cached_property
    def _products(self) -> defaultdict[Basis | None, list[Batch]]:
        return defaultdict(list)


def identity(raw: Tensor, baseline: Tensor) -> Tensor:
    """Return c̄ (1 + r)."""
    return baseline * (1.0 + raw)


def positive(raw: Tensor, baseline: Tensor) -> Tensor:
    """softplus, shifted so that 0 gives the baseline."""
    return baseline * functional.softplus(raw + log(e - 1.0))


def tapered(raw: Tensor, baseline: Tensor) -> Tensor:
    """Positive, and close to the baseline where that is close to 1: at the smallest t.

    c spreads little there; but few times of a training batch are so small, and the trunk's features
    hardly tell them from larger ones, where c spreads most.
    """
    return positive((1.0 - baseline).clamp(min=0.0) * raw, baseline)


Link = Callable[[Tensor, Tensor], Tensor]
LINKS: dict[str, Link] = {"identity": identity, "positive": positive, "tapered": tapered}
Unit = Literal["own", "root", "one"]  # the method's own, √c̄_t, or 1


class CovarianceHead(nn.Module):
    """A network on the trunk's features, and tables over t that say how its output is read.

    The baseline c̄_t (if any) is what it is relative to, and `floor` the least c of a head that was
    solved for. Solved by ranges of t, its last layer has `weight` and `bias` at each of `knots`.
    """

    tables: ClassVar = ("baseline", "floor", "knots", "weight", "bias")
    baseline: Tensor | None
    floor: Tensor | None
    knots: Tensor | None
    weight: Tensor
    bias: Tensor

    def __init__(
        self,
        net: nn.Module,
        baseline: OverTime | None = None,
        link: str = "identity",
        unit: Unit = "own",
        **tables: Tensor | None,
    ) -> None:
        super().__init__()
        self.net, self.link, self.unit = net, LINKS[link], unit
        for name in self.tables:
            self.register_buffer(name, baseline if name == "baseline" else tables.get(name))

    @classmethod
    def of_state(
        cls, net: nn.Module, state: Mapping[str, Tensor], link: str, unit: Unit = "own"
    ) -> CovarianceHead:
        """Return the head whose `state_dict` this is."""
        tables = {name: state[name].clone() for name in cls.tables if name in state}
        head = cls(net, tables.pop("baseline", None), link, unit, **tables)
        head.load_state_dict(state)
        return head

    def forward(self, features: TrunkFeatures, t: Times | None = None) -> Tensor:
        if self.knots is None:
            return cast(Tensor, self.net(features))
        if t is None:
            raise OcmError("a head that was solved by ranges of t needs t")
        above = torch.bucketize(t, self.knots[1:-1], right=True) + 1
        low, high = self.knots[above - 1], self.knots[above]
        share = ((t - low) / (high - low)).to(self.weight)
        name, _ = last_layer(self.net)

        def between(table: Tensor) -> Tensor:
            """Return the table at t, straight between knots."""
            weight = share.view(-1, *(1,) * (table.ndim - 1))
            return torch.lerp(table[above - 1], table[above], weight)

        def one(weight: Tensor, bias: Tensor, *item: Tensor) -> Tensor:
            layer = {f"{name}.weight": weight, f"{name}.bias": bias}
            alone = TrunkFeatures(*(part.unsqueeze(0) for part in item))
            image: Tensor = torch.func.functional_call(self.net, layer, (alone,))
            return image.squeeze(0)

        image: Tensor = torch.vmap(one)(between(self.weight), between(self.bias), *features)
        return image


class LearnedMethod(CovarianceMethod):
    """A method with a head, and the loss that trains it."""

    needs = "head"
    pooled: ClassVar[bool] = False  # a head with weights of its own for each number that it gives
    training_probes: ClassVar[int] = 0  # of a batch's, that the loss reads; 0: it needs no Jacobian

    @abstractmethod
    def loss(self, batch: TrainingBatch) -> PerSample:
        """Return the loss of the head on each sample."""


class RegressionMethod(LearnedMethod, PosteriorMethod):
    """c fitted by least squares to a target with mean c."""

    @abstractmethod
    def published(self, raw: Tensor, prediction: Prediction) -> Tensor:
        """Return c as the published heads encode it."""

    @abstractmethod
    def target(self, batch: TrainingBatch) -> Tensor:
        """Return a random value with E[target | x_t] = c."""

    def c(self, prediction: Prediction) -> Tensor:
        raw, baseline = prediction.head(self.label), self.baseline(prediction)
        if baseline is None:
            c = self.published(raw, prediction)
        else:
            c = cast(CovarianceHead, prediction.denoiser.heads[self.label]).link(raw, baseline)
        floor = self.floor(prediction)
        return c if floor is None else torch.maximum(c, floor)

    def baseline(self, prediction: Prediction) -> Tensor | None:
        """Return c̄, which the head is relative to; None where it is as published."""
        return self._table("baseline", prediction)

    def floor(self, prediction: Prediction) -> Tensor | None:
        """Return the least c of a head that was solved for."""
        return self._table("floor", prediction)

    def loss(self, batch: TrainingBatch) -> PerSample:
        with torch.no_grad():
            target = self.target(batch)
        error = self.c(batch.prediction) - target
        baseline = self.baseline(batch.prediction)
        if baseline is not None:
            error = error / self._unit(baseline, batch.prediction)
        return sum_dims(error**2)

    def unit(self, baseline: Tensor) -> Tensor:
        """How the target's standard deviation given x_t grows with c̄_t, for a perfect score."""
        return baseline

    def linear_target(self, batch: TrainingBatch) -> tuple[Batch, Tensor]:
        """Return the raw output that a linear layer is fitted to, and the weight of its square."""
        target, baseline = self.target(batch), self.baseline(batch.prediction)
        if baseline is None:
            offset = self.published(torch.zeros_like(target), batch.prediction)
            return target - offset, torch.ones_like(target[:, :1])
        unit = self._unit(baseline, batch.prediction)
        return target / baseline - 1.0, (baseline / unit) ** 2

    def _unit(self, baseline: Tensor, prediction: Prediction) -> Tensor:
        """Return what the head says that errors are measured in."""
        unit = cast(CovarianceHead, prediction.denoiser.heads[self.label]).unit
        if unit == "own":
            return self.unit(baseline)
        return baseline.sqrt() if unit == "root" else torch.ones_like(baseline)

    def _table(self, name: str, prediction: Prediction) -> Tensor | None:
        table = getattr(prediction.denoiser.heads.get(self.label), name, None)
        what = f"the {name} of head '{self.label}'"
        return None if table is None else prediction.at(table, what)
