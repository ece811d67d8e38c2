"""The error of a trained head at equal computing time, against exact diagonals at held-out points.

The plain head (published form, zero start, one probe) gets its best learning rate of a grid, chosen
by the very error that is compared; the tapered head, relative to a table of moments, pays for that
table out of the same time. Both use this project's training step, and either kind of head that the
paper puts on UNets. The error is the mean square of c - c_exact.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import cast

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import Tensor

from ocm_core import covariance
from ocm_core.bench.interface import Benchmark, Measured
from ocm_core.bench.networks import small_unet
from ocm_core.bench.timing import seconds
from ocm_core.covariance._head import CovarianceHead, LearnedMethod, RegressionMethod
from ocm_core.covariance.interface import PosteriorMethod
from ocm_core.diffusion import schedule as schedules
from ocm_core.diffusion.denoiser import Denoiser, Prediction
from ocm_core.likelihood.decoder import Decoder
from ocm_core.params.schema import Moments, Optimiser
from ocm_core.training.batches import InMemory
from ocm_core.training.head_fitting import HeadFitting
from ocm_core.training.loop import fit
from ocm_core.training.moments import baseline_gaussian, baseline_moments, estimate
from ocm_core.training.score_matching import ScoreMatching

BUDGET = 20.0  # CPU seconds a head
SCORE_ITERATIONS = 500
RATES = (2e-3, 8e-3, 3e-2)  # of the plain head
RELATIVE_RATE = 8e-3
SEEDS = 2
MOMENTS = Moments(draws=64, batch_size=64, stride=10, seed=0)
TIMES = (1, 5, 20, 50, 100, 200, 400, 800)
POINTS = 16
_TIMED = 20  # iterations that tell how long one takes


def settings(iterations: int, rate: float, seed: int) -> Optimiser:
    return Optimiser(
        iterations=iterations,
        batch_size=64,
        accumulate=1,
        learning_rate=rate,
        decay="cosine",
        weight_decay=0.0,
        ema=0.99,
        precision="float32",
        seed=seed,
        checkpoint_every=iterations,
    )


@dataclass(frozen=True)
class Trial:
    """A trained score network, training images and images held out."""

    denoiser: Denoiser
    train: Tensor
    held_out: Tensor
    kind: str  # of head

    @cached_property
    def points(self) -> list[tuple[Prediction, Tensor]]:
        """Held-out noisy points at each of the times, and the exact c there."""
        exact = cast(PosteriorMethod, covariance.build("exact_diag"))
        draw, schedule = torch.Generator().manual_seed(0), self.denoiser.schedule
        found = []
        for t in TIMES:
            eps = torch.randn(self.held_out.shape, generator=draw)
            x = schedule.alpha_bar[t] ** 0.5 * self.held_out + schedule.b[t] ** 0.5 * eps
            prediction = self.denoiser.predict(x, t)
            found.append((prediction, exact.c(prediction).detach()))
        return found

    @torch.no_grad()
    def error(self, head: CovarianceHead) -> float:
        method = cast(RegressionMethod, covariance.build("ocm"))
        able = replace(self.denoiser, heads={"ocm": head})
        squares = [
            (method.c(replace(prediction, denoiser=able)) - exact).square().mean()
            for prediction, exact in self.points
        ]
        return float(torch.stack(squares).mean())

    def baseline_table(self) -> Tensor:
        """c̄_t from a few images at a few timesteps."""
        schedule, variance = self.denoiser.schedule, float(self.train.var(0).mean())
        gaussian = baseline_gaussian(schedule.alpha_bar, schedule.b, variance)
        found = estimate(self.denoiser, InMemory(self.train), MOMENTS)
        return baseline_moments(torch.from_numpy(found.excess), torch.from_numpy(gaussian))

    def train_head(self, head: CovarianceHead, rate: float, seed: int, iterations: int) -> None:
        method = cast(LearnedMethod, covariance.build("ocm"))
        able = replace(self.denoiser, heads={"ocm": head})
        fitting = HeadFitting(able, {"ocm": method}, InMemory(self.train), Decoder(None))
        with TemporaryDirectory() as folder:
            state = fit(fitting, settings(iterations, rate, seed), Path(folder))
        state.use_average()

    @cached_property
    def step_seconds(self) -> float:
        work = partial(self.train_head, self.plain(0), RELATIVE_RATE, 0, _TIMED)
        work()
        return seconds(work) / _TIMED

    def iterations_in(self, budget: float) -> int:
        return max(1, int(budget / self.step_seconds))

    def plain(self, seed: int) -> CovarianceHead:
        torch.manual_seed(seed)
        return CovarianceHead(self.denoiser.network.make_head(self.kind))

    def relative(self, seed: int, table: Tensor) -> CovarianceHead:
        torch.manual_seed(seed)
        net = self.denoiser.network.make_head(self.kind)
        return CovarianceHead(net, table, link="tapered", unit="one")


def images() -> tuple[Tensor, Tensor]:
    """To train with, and held out."""
    every = torch.from_numpy(load_digits().images).float()[:, None] / 8 - 1
    return every[:-POINTS], every[-POINTS:]


@cache
def score(iterations: int = SCORE_ITERATIONS) -> Denoiser:
    """The digits' network, trained for less long."""
    denoiser = Denoiser(small_unet(), schedules.linear(1000))
    train, _ = images()
    matching = ScoreMatching(denoiser, InMemory(train), Decoder(17))
    with TemporaryDirectory() as folder:
        state = fit(matching, settings(iterations, 4e-3, 1), Path(folder))
    state.use_average()
    denoiser.network.eval().requires_grad_(False)
    return denoiser


def _errors(kind: str) -> Measured:
    found = Trial(score(), *images(), kind)

    def plain(rate: float, seed: int) -> float:
        head = found.plain(seed)
        found.train_head(head, rate, seed, found.iterations_in(BUDGET))
        return found.error(head)

    def relative(seed: int) -> float:
        start = time.process_time()
        table = found.baseline_table()
        left = BUDGET - (time.process_time() - start)
        head = found.relative(seed, table)
        found.train_head(head, RELATIVE_RATE, seed, found.iterations_in(left))
        return found.error(head)

    iterations = found.iterations_in(BUDGET)  # timed before anything is charged for it
    tuning = {rate: plain(rate, 0) for rate in RATES}
    rate = min(tuning, key=lambda key: tuning[key])
    theirs = [tuning[rate], *(plain(rate, seed) for seed in range(1, SEEDS))]
    ours = [relative(seed) for seed in range(SEEDS)]
    ratios = [a / b for a, b in zip(ours, theirs, strict=True)]
    return Measured(
        float(np.median(ours) / np.median(theirs)),
        min(ratios),
        max(ratios),
        {
            "error": ours,
            "baseline_error": theirs,
            "baseline_error_by_learning_rate": {str(key): value for key, value in tuning.items()},
            "cpu_seconds_a_head": BUDGET,
            "baseline_iterations": iterations,
        },
    )


BENCHMARKS = [
    Benchmark(
        name=f"covariance_error_{kind}",
        what=f"mean squared error of c at equal computing time, `{kind}` head on the digits' UNet",
        baseline="plain head, zero start, one probe, best of three learning rates",
        target=0.35,
        measure=partial(_errors, kind),
    )
    for kind in ("simple", "complex")
]
