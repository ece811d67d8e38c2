"""The networks of the paper at full size, on the meta device, with everything that a step needs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, cast

import torch

from benchmarks.synchronisations import META, MetaNoise
from ocm_core import covariance
from ocm_core.covariance.interface import CovarianceMethod
from ocm_core.covariance.learned import LearnedMethod
from ocm_core.diffusion.denoiser import Denoiser
from ocm_core.params.compose import compose
from ocm_core.schema.experiment import Experiment
from ocm_core.stages._networks import new_denoiser, new_score
from ocm_core.stages.heads import new_head
from ocm_core.training.batches import DroppedLabels, InMemory, Items

NAMES = ("cifar10_ls", "cifar10_cs", "celeba64", "imagenet64", "lsun_bedroom", "imagenet256")
BATCH = 2


@dataclass(frozen=True)
class Case:
    experiment: Experiment
    denoiser: Denoiser
    methods: dict[str, CovarianceMethod]

    @property
    def shape(self) -> tuple[int, ...]:
        return self.experiment.shape

    @property
    def noise(self) -> MetaNoise:
        return MetaNoise(BATCH, self.shape)

    @property
    def label(self) -> torch.Tensor | None:
        if not self.denoiser.network.conditional:
            return None
        return torch.zeros(BATCH, dtype=torch.int64, device=META)

    @property
    def items(self) -> Items:
        """On the host, as a training set is."""
        x0, label = torch.zeros(3, *self.shape), torch.zeros(3, dtype=torch.int64)
        network = self.denoiser.network
        if not network.conditional:
            return InMemory(x0)
        return DroppedLabels(InMemory(x0, label), network)

    @property
    def learned(self) -> dict[str, LearnedMethod]:
        return {
            label: cast(LearnedMethod, method)
            for label, method in self.methods.items()
            if method.needs == "head"
        }


@cache
def case(name: str) -> Case:
    """With a head for each method that has one; built once for all tests."""
    experiment = compose(name)
    kinds = {label: (m.kind, m.options) for label, m in experiment.methods.items()}
    kinds["probes"] = ("rademacher", {})
    methods = {label: _with_one_probe(k, label, o) for label, (k, o) in kinds.items()}
    with torch.device(META):
        network = new_score(experiment, "published").eval()
        heads = {
            label: new_head(experiment, label, network, None)
            for label, method in methods.items()
            if method.needs == "head"
        }
    known = new_denoiser(experiment, network)
    moments = torch.empty(known.schedule.steps + 1, dtype=torch.float64, device=META)
    denoiser = Denoiser(network, known.schedule, known.time, heads, moments)
    time, x = torch.ones(1, dtype=torch.int64, device=META), torch.empty(1, 1, device=META)
    denoiser.schedule.marginal_at(time, x)  # tables go to the device at their first use
    return Case(experiment, denoiser, methods)


def _with_one_probe(kind: str, label: str, options: dict[str, Any]) -> CovarianceMethod:
    """Further probes are further products, and wait for nothing else."""
    return covariance.build(
        kind, label, **(options | ({"probes": 1} if "probes" in options else {}))
    )
