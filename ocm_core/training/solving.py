"""Solve for the last layer of covariance heads: the optimum of a least-squares fit.

The raw output is y = W φ(x_t, t), and targets τ are given: W = (Σ w φφᵀ + ridge)⁻¹ Σ w φτᵀ over
positions, images and t. Times are drawn from intervals that are short at small t, each as often as
any other, and weighed by their length, so that the sums stand for the loss over uniform t. Sums are
in float64 and add over processes; the ridge has the least error on an eighth of the draws.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from jaxtyping import Float, Float64
from torch import Tensor, nn
from torch.nn import functional

from ocm_core.covariance.learned import CovarianceHead, RegressionMethod
from ocm_core.diffusion.score_network import TrunkFeatures, last_layer
from ocm_core.distributed import Rank
from ocm_core.errors import OcmError
from ocm_core.io.state_file import State, load_state, save_state
from ocm_core.progress import Progress
from ocm_core.rng.batches import BatchRng
from ocm_core.schema.experiment import SolveParams
from ocm_core.shapes import Images, OverTime, Times
from ocm_core.training.head_fitting import HeadFitting

INTERVALS = 20  # of t, on a quadratic grid
RIDGES = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-8, 1e-10, 1e-14)  # of the mean of φ²
_HALVES = ("fit", "held_out")  # every eighth round through the intervals is held out
_FLOOR = 0.1  # of the mean of c at t: the least c of a solved head
_SAVES = 20

Sums = dict[str, Float64[Tensor, "..."]]  # `fit.LABEL.gram` and `.cross`, by range of t


class LastLayer:
    """The inputs of a head's last layer, and images in the layout of its outputs."""

    def __init__(self, net: nn.Module) -> None:
        self.net = net
        _, self.layer = last_layer(net)

    def inputs(self, features: TrunkFeatures) -> Float[Tensor, "batch position feature"]:
        """Return what the layer reads at each position, and a 1 for its bias."""
        seen: list[Tensor] = []
        hook = self.layer.register_forward_pre_hook(lambda _, given: seen.append(given[0]))
        with hook:
            self.net(features)
        if isinstance(self.layer, nn.Conv2d):
            size: Any = self.layer.kernel_size
            padding: Any = self.layer.padding
            rows = functional.unfold(seen[0], size, padding=padding).mT
        else:
            rows = seen[0].reshape(len(seen[0]), -1, seen[0].shape[-1])
        return functional.pad(rows, (0, 1), value=1.0)

    def arranged(
        self, features: TrunkFeatures, image: Images
    ) -> Float[Tensor, "batch position out"]:
        """Return images as the layer would put them out, position by position."""
        numbers: list[Tensor] = []

        def count(layer: nn.Module, given: Any, output: Tensor) -> Tensor:
            numbers.append(torch.arange(output[0].numel(), device=output.device).view_as(output[0]))
            return numbers[-1][None].double()

        hook = self.layer.register_forward_hook(count)
        with hook:
            places = self.net(TrunkFeatures(*(part[:1] for part in features)))[0].long()
        flat = torch.empty_like(image.flatten(1))
        flat[:, places.flatten()] = image.flatten(1)
        whole = flat.view(len(image), *numbers[0].shape)
        rows = whole.flatten(2).mT if isinstance(self.layer, nn.Conv2d) else whole
        return rows.reshape(len(image), -1, rows.shape[-1])

    @torch.no_grad()
    def assign(self, solution: Float64[Tensor, "feature out"]) -> None:
        """Put a solution into the layer."""
        weight, bias = self.split(solution)
        self.layer.weight.copy_(weight)
        _bias(self.layer).copy_(bias)

    def split(self, solution: Tensor) -> tuple[Tensor, Tensor]:
        """Return weight and bias of a solution in the layer's layout."""
        weight = solution[:-1].T.reshape(self.layer.weight.shape).to(self.layer.weight)
        return weight, solution[-1].to(self.layer.weight)


def _bias(layer: nn.Linear | nn.Conv2d) -> Tensor:
    if layer.bias is None:
        raise OcmError("head: its last layer has no bias, and cannot be solved for")
    return layer.bias


@dataclass(frozen=True)
class HeadSolving:
    """The normal equations of heads that are fitted by least squares."""

    fitting: HeadFitting  # whose methods are all regressions, with linear heads
    settings: SolveParams
    device: str = "cpu"

    @property
    def heads(self) -> Mapping[str, CovarianceHead]:
        """Return the heads to solve for."""
        return cast(Mapping[str, CovarianceHead], self.fitting.networks)

    @property
    def batches(self) -> range:
        """Return the numbers of the batches of draws."""
        return range(-(-self.settings.draws // self.settings.batch_size))

    @cached_property
    def knots(self) -> list[int]:
        """Return the ends of the intervals of t: 1 … T, dense at small t."""
        last = self.fitting.denoiser.schedule.steps
        grid = np.linspace(1.0, last**0.5, INTERVALS + 1) ** 2
        return sorted({round(t) for t in grid.tolist()})

    @cached_property
    def leaders(self) -> dict[str, str]:
        """Return, for each label, the first one whose last layer reads the same."""
        leaders: dict[str, str] = {}
        for label in self.heads:
            known = (other for other in leaders.values() if self._read_the_same(label, other))
            leaders[label] = next(known, label)
        return leaders

    def _read_the_same(self, *labels: str) -> bool:
        heads = [self.heads[label] for label in labels]
        if any(head.baseline is not None for head in heads):
            return False  # each weighs positions by its own table
        layer = last_layer(heads[0].net)[0]
        one, other = (head.net.state_dict() for head in heads)
        shared = [k for k in one if not k.startswith(f"{layer}.")]
        return one.keys() == other.keys() and all(torch.equal(one[k], other[k]) for k in shared)

    def add(self, sums: Sums, number: int) -> None:
        """Add one batch of draws to the sums."""
        rng = BatchRng(self.settings.seed, number, self.settings.batch_size, self.device)
        rng.seed_torch()
        turn, place = divmod(number, len(self.knots) - 1)
        low, high = self.knots[place], self.knots[place + 1]
        t = (low + rng.uniforms() * (high - low + 1)).long().clamp(max=high)
        batch = self.fitting.predict(self.fitting.draw(rng, t))
        parts = (part.detach().to(batch.x0.dtype) for part in batch.prediction.features)
        features, read = TrunkFeatures(*parts), dict[str, Tensor]()
        order = torch.randperm(batch.x0[0].numel())
        for label, leader in self.leaders.items():
            layer = LastLayer(self.heads[label].net)
            with torch.no_grad():
                target, weight = self._method(label).linear_target(batch)
                if leader == label:
                    read[label] = self._chosen(layer.inputs(features), order)
                wanted = self._chosen(layer.arranged(features, target), order)
            for at, share in self._ranges(t, place):
                factor = (weight.flatten(1)[:, :1] * (high - low) * share[:, None]).unsqueeze(-1)
                weighted = (read[leader] * factor).flatten(0, 1).T
                name = f"{_HALVES[turn % 8 == 1]}.{label}"
                terms = {"cross": weighted @ wanted.flatten(0, 1)}
                if leader == label:
                    terms["gram"] = weighted @ read[leader].flatten(0, 1)
                for kind, term in terms.items():
                    sums.setdefault(f"{name}.{kind}", term.new_zeros(self._size, *term.shape))
                    sums[f"{name}.{kind}"][at] += term

    def finish(self, sums: Sums, means: Mapping[str, OverTime]) -> None:
        """Put the solutions into the heads; `means` are those of their targets over t."""
        for label, head in self.heads.items():
            leader, layer = self.leaders[label], LastLayer(head.net)
            parts = [
                (sums[f"{half}.{leader}.gram"], sums[f"{half}.{label}.cross"]) for half in _HALVES
            ]
            solutions = [
                solution(*((gram[at], cross[at]) for gram, cross in parts))
                for at in range(self._size)
            ]
            layer.assign(torch.stack(solutions).mean(0))
            tables = {"floor": _FLOOR * means[label].clamp(min=0.0).to(self.device)}
            if self.settings.by_range:
                weights, biases = zip(*map(layer.split, solutions), strict=True)
                tables |= {"weight": torch.stack(weights), "bias": torch.stack(biases)}
                tables["knots"] = torch.tensor(self.knots, device=self.device)
            for name, table in tables.items():
                head.register_buffer(name, table)

    @property
    def _size(self) -> int:
        return len(self.knots) if self.settings.by_range else 1

    def _method(self, label: str) -> RegressionMethod:
        return cast(RegressionMethod, self.fitting.methods[label])

    def _chosen(self, rows: Tensor, order: Tensor) -> Float64[Tensor, "batch position n"]:
        """Return some positions of each image, the same for all layers."""
        places = order[order < rows.shape[1]][: self.settings.positions]
        return rows[:, places.to(rows.device)].double()

    def _ranges(self, t: Times, place: int) -> list[tuple[int, Float64[Tensor, " batch"]]]:
        """Return the ranges that the samples of an interval count for, and how much each does."""
        share = (t - self.knots[place]).double() / (self.knots[place + 1] - self.knots[place])
        if not self.settings.by_range:
            return [(0, torch.ones_like(share))]
        return [(place, 1.0 - share), (place + 1, share)]


def solve(
    solving: HeadSolving,
    folder: Path,
    means: Mapping[str, OverTime],
    *,
    progress: Progress[int] = iter,
    rank: Rank = Rank(),  # noqa: B008 - frozen
) -> None:
    """Sum over all draws, from what lies in `folder` if a run was interrupted, and solve."""

    def saved() -> list[State]:
        files = sorted(folder.glob("sums-*.safetensors"))
        return [state for state in map(load_state, files) if state]

    def missing() -> list[int]:
        done = {number for state in saved() for number in state.facts}
        return [number for number in solving.batches if number not in done]

    own = folder / f"sums-{rank.index}.safetensors"
    mine, state = rank.mine(rank.agreed(missing)), load_state(own)
    sums, done = (dict(state.tensors), list(state.facts)) if state else (Sums(), [])
    every = max(1, len(mine) // _SAVES)
    for count, number in enumerate(progress(mine), start=1):
        solving.add(sums, number)
        done.append(number)
        if count % every == 0 or count == len(mine):
            save_state(own, sums, done)
    rank.wait()
    total = Sums()
    for state in saved():
        for key, term in state.tensors.items():
            total[key] = total[key] + term if key in total else term
    solving.finish({key: term.to(solving.device) for key, term in total.items()}, means)


def solution(
    fit: tuple[Tensor, Tensor], held_out: tuple[Tensor, Tensor]
) -> Float64[Tensor, "feature out"]:
    """Return W of all draws, with the ridge that has the least error on those held out."""

    def solved(gram: Tensor, cross: Tensor, ridge: float) -> Tensor:
        penalty = ridge * gram.diagonal().mean() * torch.eye(len(gram)).to(gram)
        weights: Tensor = torch.linalg.solve(gram + penalty, cross)
        return weights

    def error(ridge: float) -> float:
        (gram, cross), weights = held_out, solved(*fit, ridge)
        return float((weights * (gram @ weights - 2 * cross)).sum())

    gram, cross = (one + other for one, other in zip(fit, held_out, strict=True))
    return solved(gram, cross, min(RIDGES, key=error))
