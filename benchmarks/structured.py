"""What correlation costs in a sampling step, and what it costs to solve for heads.

A solve is compared with the passes of the network that it makes: one forward, and one product with
the Jacobian for the target of `ocm`. Time is measured on the network of `cifar10_small`; operations
are counted on DiT-XL/2. The details have the bytes of the normal equations at full size.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, cast

import torch
from torch.utils.flop_counter import FlopCounterMode
from torch.utils.module_tracker import ModuleTracker

from benchmarks.interface import Benchmark, Measured
from benchmarks.measuring import interleaved
from benchmarks.networks import drawn
from benchmarks.sampling_head import SamplingStep
from ocm_core import covariance
from ocm_core.checkpoints.registry import CHECKPOINTS
from ocm_core.covariance.learned import CovarianceHead, RegressionMethod
from ocm_core.diffusion import basis
from ocm_core.diffusion import schedule as schedules
from ocm_core.diffusion.denoiser import Denoiser, executed
from ocm_core.diffusion.gaussian import Decoder
from ocm_core.networks import build
from ocm_core.params.compose import compose
from ocm_core.rng.batches import BatchRng
from ocm_core.schema.experiment import SolveParams, TrunkNetworkParams
from ocm_core.training.batches import InMemory, NoisyDraws
from ocm_core.training.head_fitting import HeadFitting
from ocm_core.training.solving import HeadSolving, Sums

LABELS = ("ocm", "npr", "sn")
BATCH, REPEATS, SOLVES = 100, 9, 5
UNETS = ("cifar10_ls", "cifar10_cs", "celeba64", "imagenet64", "lsun_bedroom")


def cifar10_small() -> tuple[Denoiser, tuple[int, ...]]:
    """The network as it is run, with drawn weights, heads for `LABELS` and a spectrum."""
    experiment = compose("cifar10_small")
    params, shape = experiment.network, experiment.shape
    assert isinstance(params, TrunkNetworkParams)
    network = drawn(build(params.family, params.config)).requires_grad_(False)
    heads = {label: CovarianceHead(network.make_head("simple")) for label in LABELS}
    vectors = basis.build("dct", torch.zeros(1, *shape))
    falling = torch.linspace(0, -6, vectors.spread(torch.ones(1, *shape)).numel()).double()
    spectrum = basis.Spectrum(vectors, (1, 1000), falling.view(shape).expand(2, *shape))
    levels = schedules.of_experiment(experiment)
    return Denoiser(network, levels, heads=heads, spectra={"dct": spectrum}), shape


@dataclass(frozen=True)
class Solve:
    """One batch of draws of a solve, and the passes of the network that it makes."""

    solving: HeadSolving

    @classmethod
    def on(cls, denoiser: Denoiser, shape: tuple[int, ...], batch: int, **how: Any) -> Solve:
        device = str(next(denoiser.network.parameters()).device)
        labels = torch.zeros(batch).long() if denoiser.network.conditional else None
        items = InMemory(torch.rand(batch, *shape) * 2 - 1, labels)
        methods = {label: covariance.build(label) for label in denoiser.heads}
        fitting = HeadFitting(denoiser, cast(Any, methods), items, Decoder(None))
        return cls(HeadSolving(fitting, SolveParams(batch_size=batch, **how), device))

    @cached_property
    def drawn(self) -> NoisyDraws:
        """The draws of a batch, made beforehand."""
        settings, fitting = self.solving.settings, self.solving.fitting
        rng = BatchRng(settings.seed, 0, settings.batch_size, self.solving.device)
        return fitting.draw(rng)

    def sums(self) -> Sums:
        found = Sums()
        self.solving.add(found, 0)
        return found

    def passes(self) -> None:
        """One forward, and one product with the Jacobian."""
        fitting = self.solving.fitting
        cast(RegressionMethod, fitting.methods["ocm"]).target(fitting.predict(self.drawn))

    @property
    def bytes(self) -> int:
        """Return what the sums take: those of the draws that are fitted and those held out."""
        return 2 * sum(term.numel() * term.element_size() for term in self.sums().values())


def published(name: str, **how: Any) -> Solve:
    """Return the solve of the head `ocm` of a published experiment at full size, one image."""
    checkpoint = CHECKPOINTS[name]
    with torch.device("meta"):
        network = checkpoint.network().eval().requires_grad_(False)
        heads = {"ocm": CovarianceHead(network.make_head(checkpoint.head))}
        schedule = schedules.build(checkpoint.schedule, checkpoint.steps)
        denoiser = Denoiser(network, schedule, checkpoint.time, heads)
    return Solve.on(denoiser, compose(name).shape, batch=1, **how)


class NoModules(ModuleTracker):
    """Counts for no module: the hooks for that refuse a gradient in the network's input."""

    def __enter__(self) -> NoModules:
        return self

    def __exit__(self, *_: object) -> None:
        pass


def flops(work: Callable[[], object]) -> int:
    counter = FlopCounterMode(display=False)
    counter.mod_tracker = NoModules()
    with counter:
        work()
    return counter.get_total_flops()


def _step() -> Measured:
    denoiser, shape = cifar10_small()
    how: Any = {"precision": "bfloat16", "channels_last": True, "compiled": False}
    x, noise = torch.randn(2, BATCH, *shape)
    step = SamplingStep(executed(denoiser, **how), x, noise)
    compared = interleaved(partial(step.run, "ocm+dct"), partial(step.run, "ocm"), REPEATS)
    return compared.measured(batch=BATCH, network="UNet of cifar10_small")


def _solve() -> Measured:
    solve = Solve.on(*cifar10_small(), BATCH)
    compared = interleaved(solve.sums, solve.passes, SOLVES)
    ranges = replace(solve.solving, settings=SolveParams(batch_size=BATCH, by_range=True))
    by_range = interleaved(Solve(ranges).sums, solve.passes, SOLVES).ratio
    details = {"batch": BATCH, "heads": len(LABELS), "ratio_by_range": by_range}
    return compared.measured(network="UNet of cifar10_small", **details)


def _counted() -> Measured:
    solve = published("imagenet256")
    ours, passes = flops(solve.sums), flops(solve.passes)
    details = {"operations": ours, "operations_of_passes": passes}
    for name in ("imagenet256", *UNETS):
        details[f"bytes_{name}"] = published(name).bytes
        details[f"bytes_by_range_{name}"] = published(name, by_range=True).bytes
    return Measured.exactly(ours / passes, **details)


BENCHMARKS = [
    Benchmark(
        name="structured_step",
        what="a sampling step with `ocm+dct`, UNet of cifar10_small, 100 images in bfloat16",
        baseline="with `ocm`",
        target=1.05,
        measure=_step,
    ),
    Benchmark(
        name="solve_time",
        what="100 draws of a solve for three heads, UNet of cifar10_small",
        baseline="the network passes that they make",
        target=1.5,
        measure=_solve,
    ),
    Benchmark(
        name="solve_operations",
        what="operations of a draw of a solve, DiT-XL/2",
        baseline="of its network passes",
        target=1.1,
        measure=_counted,
    ),
]
