"""A sampling step with a head against the same step without, by operations and by time.

Operations are counted by PyTorch on the published networks. Time is measured where a step
takes a second at most. The target of the `complex` head is for 64×64 images; that of LSUN, at
256×256, is recorded in the details.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.interface import Benchmark, Measured
from benchmarks.measuring import interleaved
from benchmarks.networks import drawn
from ocm_core import covariance
from ocm_core.checkpoints.registry import CHECKPOINTS, Checkpoint
from ocm_core.covariance.interface import NON_NEGATIVE, ReverseStep
from ocm_core.covariance.learned import CovarianceHead
from ocm_core.diffusion import schedule as schedules
from ocm_core.diffusion.denoiser import Denoiser
from ocm_core.diffusion.kernels.ddpm import Ddpm
from ocm_core.diffusion.transition import transition
from ocm_core.params.compose import compose
from ocm_core.rng.noise import SampleNoise

REPEATS = 9
COUNTED = ("cifar10_ls", "cifar10_cs", "celeba64", "imagenet64", "imagenet256")
TARGETS = {"simple": 1.01, "adaln": 1.01, "complex": 1.06}
TIMED = {"cifar10_ls": 4, "imagenet64": 1}  # batch sizes: a `simple` and a `complex` head
ABOVE = 0.03


@dataclass(frozen=True)
class SamplingStep:
    """One sampling step, with the variance of the head or a fixed one."""

    denoiser: Denoiser
    x: Tensor
    noise: Tensor

    @classmethod
    def on(cls, checkpoint: Checkpoint, batch: int) -> SamplingStep:
        network = checkpoint.network()
        head = CovarianceHead(network.make_head(checkpoint.head))
        schedule = schedules.build(checkpoint.schedule, checkpoint.steps)
        denoiser = Denoiser(network, schedule, checkpoint.time, {"ocm": head})
        shape = (batch, *compose(checkpoint.name).shape)
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
    """Count one image: the network without its head, and the head."""
    checkpoint = CHECKPOINTS[name]
    network_count, head_count = (FlopCounterMode(display=False) for _ in range(2))
    with torch.device("meta"), torch.no_grad():
        network = checkpoint.network().eval()
        head = CovarianceHead(network.make_head(checkpoint.head))
        x, t, label = torch.zeros(1, *compose(name).shape), torch.ones(1), torch.zeros(1).long()
        with network_count:
            features = network.features(x, t, label if network.conditional else None)
            network.readout(features)
        with head_count:
            head(features)
    return network_count.get_total_flops(), head_count.get_total_flops()


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
