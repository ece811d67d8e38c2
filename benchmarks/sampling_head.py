"""A sampling step with a head against the same step without, by operations and by time.

Operations are counted as by `ocm cost`, on the published networks. Time is measured where a step
takes a second at most. The target of the `complex` head is for 64×64 images; that of LSUN, at
256×256, is recorded in the details.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from benchmarks.interface import Benchmark, Measured
from benchmarks.measuring import interleaved
from benchmarks.networks import drawn
from ocm_core import covariance
from ocm_core.checkpoints.registry import CHECKPOINTS, Checkpoint
from ocm_core.covariance.interface import NON_NEGATIVE, ReverseStep
from ocm_core.covariance.learned import CovarianceHead
from ocm_core.diffusion import schedule as schedules
from ocm_core.diffusion.denoiser import Denoiser
from ocm_core.diffusion.transition import Ddpm, transition
from ocm_core.params.resolved import load
from ocm_core.planning.network_counts import counts_of
from ocm_core.rng.noise import SampleNoise

REPEATS = 9
COUNTED = ("cifar10_ls", "cifar10_cs", "celeba64", "imagenet64", "imagenet256")
TARGETS = {"simple": 1.01, "adaln": 1.01, "complex": 1.06}
TIMED = {"cifar10_ls": 4, "imagenet64": 1}  # batch sizes: a `simple` and a `complex` head
ABOVE = 0.03


@dataclass(frozen=True)
class SamplingStep:
    """One step of a chain, with the variance of the head or a fixed one."""

    denoiser: Denoiser
    x: Tensor
    noise: Tensor

    @classmethod
    def on(cls, checkpoint: Checkpoint, batch: int) -> SamplingStep:
        network = checkpoint.network()
        head = CovarianceHead(network.make_head(checkpoint.head))
        schedule = schedules.build(checkpoint.schedule, checkpoint.steps)
        denoiser = Denoiser(network, schedule, checkpoint.time, {"ocm": head})
        shape = (batch, *load(checkpoint.name).shape)
        return cls(denoiser, torch.zeros(shape), torch.ones(shape))

    @torch.no_grad()
    def run(self, method: str) -> Tensor:
        half = self.denoiser.schedule.steps // 2
        step = ReverseStep(
            transition(self.denoiser.schedule, half // 2, half), Ddpm(), NON_NEGATIVE
        )
        prediction = self.denoiser.predict(self.x, half)
        streams = SampleNoise(0, range(len(self.x)), tuple(self.x.shape[1:]))
        chosen = covariance.build(method).step_covariance(prediction, streams)(step)
        return step.mean(prediction) + chosen.scale(self.noise)


def operations(name: str) -> tuple[float, float]:
    """For one image: of the network without its head, and of the head."""
    found = counts_of(name)
    return found.evaluation.of(1).operations, found.head.of(1).operations


def ratio_of_operations(name: str) -> float:
    network, head = operations(name)
    return (network + head) / network


def _counted(name: str) -> Measured:
    network, head = operations(name)
    details: dict[str, float] = {"network_flops": network, "head_flops": head}
    if CHECKPOINTS[name].head == "complex":
        details["lsun_bedroom_at_256"] = ratio_of_operations("lsun_bedroom")
    return Measured.exactly((network + head) / network, **details)


def _timed(name: str) -> Measured:
    step = SamplingStep.on(CHECKPOINTS[name], TIMED[name])
    drawn(step.denoiser.network), drawn(step.denoiser.heads["ocm"])
    with_head, without = partial(step.run, "ocm"), partial(step.run, "beta")
    timed = interleaved(with_head, without, REPEATS).measured(batch=TIMED[name])
    counted = ratio_of_operations(name)
    return timed.less(counted, ratio_of_times=timed.ratio, ratio_of_operations=counted)


def _words(name: str) -> str:
    return f"a sampling step with the `{CHECKPOINTS[name].head}` head, {name}"


BENCHMARKS = [
    *(
        Benchmark(
            name=f"head_operations_{name}",
            what=f"operations of {_words(name)}",
            baseline="without the head",
            target=TARGETS[CHECKPOINTS[name].head],
            measure=partial(_counted, name),
        )
        for name in COUNTED
    ),
    *(
        Benchmark(
            name=f"head_time_{name}",
            what=f"time of {_words(name)}, above the ratio of operations",
            baseline="without the head",
            target=ABOVE,
            measure=partial(_timed, name),
            unit="difference",
        )
        for name in TIMED
    ),
]
