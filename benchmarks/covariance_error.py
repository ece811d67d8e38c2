"""The error of a trained head at equal computing time, against exact diagonals at held-out points.

The plain head (as published: initialised to zero, one probe) gets the best learning rate of a grid,
chosen by the error that is compared. The time that the tapered head takes to estimate the mean of
its target at each t counts as part of its training. Both use this project's training step, with
either kind of head that the paper puts on UNets. The error is the mean square of c - c_exact.
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

from benchmarks.interface import Benchmark, Measured
from benchmarks.measuring import seconds
from benchmarks.networks import small_unet
from ocm_core import covariance
from ocm_core.covariance.interface import PosteriorMethod
from ocm_core.covariance.learned import CovarianceHead, LearnedMethod, RegressionMethod
from ocm_core.diffusion import schedule as schedules
from ocm_core.diffusion.denoiser import Denoiser, Prediction
from ocm_core.diffusion.gaussian import Decoder
from ocm_core.schema.experiment import OptimiserParams
from ocm_core.training.baselines import gaussian_baseline, or_gaussian, target_means
from ocm_core.training.batches import InMemory
from ocm_core.training.head_fitting import HeadFitting
from ocm_core.training.loop import fit
from ocm_core.training.score_matching import ScoreMatching

BUDGET = 20.0  # CPU seconds a head
SCORE_ITERATIONS = 500
RATES = (2e-3, 8e-3, 3e-2)  # of the plain head
RELATIVE_RATE = 2e-2
SEEDS = 2  # of score networks and of heads
TIMES = (1, 5, 20, 50, 100, 200, 400, 800)
POINTS = 16
_TIMED = 20  # iterations that tell how long one takes


def settings(iterations: int, rate: float, seed: int) -> OptimiserParams:
    return OptimiserParams(
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
class HeadTrial:
    """A trained score network, images to train heads with, and held-out images to test them."""

    denoiser: Denoiser
    train: Tensor
    held_out: Tensor
    kind: str  # of head

    @cached_property
    def points(self) -> list[tuple[Prediction, Tensor]]:
        """Noisy held-out images at each of the timesteps, and the exact c there."""
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

    def fitting(self, **heads: CovarianceHead) -> HeadFitting:
        method = cast(LearnedMethod, covariance.build("ocm"))
        able = replace(self.denoiser, heads=heads)
        return HeadFitting(able, {"ocm": method}, InMemory(self.train), Decoder(None))

    def baseline_table(self) -> Tensor:
        gaussian = gaussian_baseline(self.denoiser.schedule, float(self.train.var(0).mean()))
        return or_gaussian(target_means(self.fitting(), seed=0)["ocm"], gaussian)

    def train_head(self, head: CovarianceHead, rate: float, seed: int, iterations: int) -> None:
        with TemporaryDirectory() as folder:
            state = fit(self.fitting(ocm=head), settings(iterations, rate, seed), Path(folder))
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
    """For training, and held out."""
    every = torch.from_numpy(load_digits().images).float()[:, None] / 8 - 1
    return every[:-POINTS], every[-POINTS:]


@cache
def score(seed: int, iterations: int = SCORE_ITERATIONS) -> Denoiser:
    """The score network of `digits`, trained for fewer iterations."""
    torch.manual_seed(seed)
    denoiser = Denoiser(small_unet(), schedules.linear(1000))
    train, _ = images()
    matching = ScoreMatching(denoiser, InMemory(train), Decoder(17))
    with TemporaryDirectory() as folder:
        state = fit(matching, settings(iterations, 4e-3, seed), Path(folder))
    state.use_average()
    denoiser.network.eval().requires_grad_(False)
    return denoiser


def _errors(kind: str) -> Measured:
    trials = [HeadTrial(score(seed), *images(), kind) for seed in range(SEEDS)]
    trained = [
        trial.iterations_in(BUDGET) for trial in trials
    ]  # before the time of any head is counted

    def plain(rate: float, seed: int) -> float:
        head = trials[seed].plain(seed)
        trials[seed].train_head(head, rate, seed, trained[seed])
        return trials[seed].error(head)

    def relative(seed: int) -> float:
        start = time.process_time()
        table = trials[seed].baseline_table()
        left = BUDGET - (time.process_time() - start)
        head = trials[seed].relative(seed, table)
        trials[seed].train_head(head, RELATIVE_RATE, seed, trials[seed].iterations_in(left))
        return trials[seed].error(head)

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
            "baseline_iterations": trained,
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
