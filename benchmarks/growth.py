"""How time and memory grow over a decade of samples, steps and images.

The exponent k of time ∝ size^k is fitted on logarithms; 1 is linear. Memory is the peak of a
process of its own that draws samples and writes them, batch by batch, as `sample` does.
"""

from __future__ import annotations

import resource
from collections.abc import Callable
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import numpy as np
import torch

from benchmarks.interface import Benchmark, Measured
from benchmarks.measuring import exponent, seconds
from benchmarks.networks import small_denoiser
from ocm_core import covariance
from ocm_core.diffusion import timesteps as rules
from ocm_core.diffusion.denoiser import Denoiser
from ocm_core.diffusion.gaussian import Decoder
from ocm_core.diffusion.kernels.ddpm import Ddpm
from ocm_core.likelihood.bound import Likelihood
from ocm_core.rng.noise import SampleNoise
from ocm_core.sampling.recipe import Recipe
from ocm_core.store import writer

DECADE = (1, 2, 5, 10)
REPEATS = 3
SHAPE, BATCH, STEPS = (1, 8, 8), 8, 10
MEMORY_SAMPLES, MEMORY_BATCH = 200, 50


def sample(
    denoiser: Denoiser, count: int, steps: int, keep: Callable[[int, torch.Tensor], None]
) -> None:
    recipe = Recipe(rules.even(1000, steps), covariance.build("beta"), Ddpm())
    for first in range(0, count, BATCH):
        noise = SampleNoise(0, range(first, first + BATCH), SHAPE)
        keep(first, recipe.draw(denoiser, noise).x)


def bound(denoiser: Denoiser, count: int) -> None:
    """The likelihood bound of that many images."""
    likelihood = Likelihood(denoiser, {"beta": covariance.build("beta")}, Decoder(17))
    x0 = torch.zeros(BATCH, *SHAPE)
    for first in range(0, count, BATCH):
        at = partial(SampleNoise, indices=range(first, first + BATCH), shape=SHAPE)
        likelihood.bounds({"K": rules.even(1000, STEPS)}, x0, at)


def _discard(first: int, x: torch.Tensor) -> None:
    """The samples are not needed: only time is measured."""


def _grows(unit: int, work: Callable[[Denoiser, int], None]) -> Measured:
    denoiser = small_denoiser()
    work(denoiser, unit)
    sizes = [unit * step for step in DECADE]
    runs = [[seconds(partial(work, denoiser, size)) for size in sizes] for _ in range(REPEATS)]
    fits = [exponent(sizes, run) for run in runs]
    medians = [median(column) for column in zip(*runs, strict=True)]
    return Measured(
        exponent(sizes, medians), min(fits), max(fits), {"sizes": sizes, "seconds": medians}
    )


def _peak(count: int) -> int:
    """Of this process, in kilobytes; run in a process of its own."""
    torch.set_num_threads(1)
    denoiser, batch = small_denoiser(), MEMORY_BATCH
    recipe = Recipe(rules.even(1000, 2), covariance.build("beta"), Ddpm())
    plan = writer.StoreLayout(
        items=range(count), shape=SHAPE, dtype="float32", chunk=batch, shard=batch
    )

    def shard(rows: range) -> dict[str, np.ndarray]:
        return {"x": recipe.draw(denoiser, SampleNoise(0, rows, SHAPE)).x.numpy()}

    with TemporaryDirectory() as folder:
        writer.write(Path(folder) / "x.zarr", plan, shard, {})
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _memory() -> Measured:
    sizes = [MEMORY_SAMPLES * step for step in DECADE]
    with get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        peaks = pool.map(_peak, sizes, chunksize=1)
    grown = [peak / peaks[0] for peak in peaks]
    return Measured(grown[-1], min(grown), max(grown), {"sizes": sizes, "peak_kilobytes": peaks})


def _time(name: str, what: str, unit: int, work: Callable[[Denoiser, int], None]) -> Benchmark:
    return Benchmark(
        name=name,
        what=f"exponent of time along {what}, over a decade",
        baseline="1: linear",
        target=1.1,
        measure=partial(_grows, unit, work),
        unit="exponent",
    )


BENCHMARKS = [
    _time("growth_samples", "samples", 16, lambda d, n: sample(d, n, STEPS, _discard)),
    _time("growth_steps", "steps", 10, lambda d, k: sample(d, BATCH, k, _discard)),
    _time("growth_images", "images of the likelihood", 16, bound),
    Benchmark(
        name="growth_memory",
        what=f"peak memory of {10 * MEMORY_SAMPLES} samples",
        baseline=f"that of {MEMORY_SAMPLES}",
        target=1.05,
        measure=_memory,
    ),
]
