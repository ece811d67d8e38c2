"""The likelihoods of all methods and timesteps computed together, against each one separately.

For six methods and six nfe. A separate run evaluates the network `nfe` times per image; all
together evaluate it once at each timestep that one of them visits. Evaluations are counted for the
full nfe; time is measured with a tenth of it, on a small network that takes most of the time
nevertheless, as real ones do.

The second benchmark times optimal timesteps, as in `digits`: the costs of all steps between 92
timesteps on 128 training images, and the timesteps of all nfe; against the table on 360 test
images, ten times the one with a tenth of the nfe.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn

from benchmarks.interface import Benchmark, Measured
from benchmarks.measuring import Comparison, interleaved
from benchmarks.networks import small_unet
from ocm_core import covariance
from ocm_core.covariance.learned import CovarianceHead
from ocm_core.diffusion import schedule as schedules
from ocm_core.diffusion import timesteps as rules
from ocm_core.diffusion.denoiser import Denoiser, Prediction
from ocm_core.diffusion.gaussian import Decoder
from ocm_core.diffusion.score_network import ScoreNetwork, TrunkFeatures
from ocm_core.diffusion.timesteps import Timesteps
from ocm_core.likelihood.bound import Bound, Likelihood
from ocm_core.rng.noise import SampleNoise
from ocm_core.schema.timesteps import PowerTimesteps
from ocm_core.shapes import Batch, Images, Labels, Times

METHODS = ("beta", "beta_tilde", "analytic", "npr", "sn", "ocm")
STEPS = (10, 25, 50, 100, 200, 1000)
SHORT = (1, 3, 5, 10, 20, 100)
WIDTH = 96
IMAGES = 4
TEST_IMAGES, TRAINING_IMAGES, POINTS = 360, 128, 92
REPEATS = 3
TIMESTEPS_REPEATS = 1  # each takes a while

Cells = Mapping[tuple[str, str], Bound]


@dataclass(frozen=True)
class CountingDenoiser(Denoiser):
    """A denoiser that records the timesteps at which it is evaluated."""

    asked: list[int] = field(default_factory=list)

    def predict(self, x: Batch, t: float | Times, label: Labels = None) -> Prediction:
        self.asked.append(int(t))
        return super().predict(x, t, label)


class IdentityNetwork(ScoreNetwork):
    """A network that takes no time, for counting evaluations."""

    head_kinds = ("simple",)
    out_channels_per_input = 1

    def features(self, x: Images, time: Tensor, label: Tensor | None = None) -> TrunkFeatures:
        return TrunkFeatures(x, time)

    def readout(self, features: TrunkFeatures) -> Tensor:
        return features.hidden

    def _build_head(self, kind: str, **sizes: int) -> nn.Module:
        return SquareHead()


class SquareHead(nn.Module):
    def forward(self, features: TrunkFeatures) -> Tensor:
        return features.hidden.square()


@dataclass(frozen=True)
class LikelihoodTable:
    denoiser: Denoiser
    x0: Tensor
    timesteps: Mapping[str, Timesteps]

    @classmethod
    def on(cls, denoiser: Denoiser, images: int, steps: Sequence[int]) -> LikelihoodTable:
        network = denoiser.network
        heads = {name: CovarianceHead(network.make_head("simple")) for name in ("npr", "sn", "ocm")}
        moments = torch.linspace(1, 1e-4, denoiser.schedule.steps + 1, dtype=torch.float64)
        found = {str(k): rules.even(denoiser.schedule.steps, k) for k in steps}
        x0 = torch.rand(images, 1, 8, 8) * 2 - 1
        return cls(replace(denoiser, heads=heads, moments=moments), x0, found)

    def together(self) -> Cells:
        return self._bounds(METHODS, self.timesteps)

    def optimal_timesteps(self, points: int) -> Mapping[str, Mapping[int, Timesteps]]:
        """Of each method, of every length that a grid of so many timesteps allows."""
        squares = PowerTimesteps(exponent=2.0, first=1)
        grid = rules.grid(squares, self.denoiser.schedule, points)
        costs = self._likelihood(METHODS).step_costs(grid, self.x0, self._noise_at)
        return {name: table.optimal() for name, table in costs.items()}

    def each_cell(self) -> Cells:
        cells = ((method, name) for method in METHODS for name in self.timesteps)
        return {
            key: bound
            for method, name in cells
            for key, bound in self._bounds((method,), {name: self.timesteps[name]}).items()
        }

    def _bounds(self, methods: tuple[str, ...], chosen: Mapping[str, Timesteps]) -> Cells:
        return self._likelihood(methods).bounds(chosen, self.x0, self._noise_at)[0]

    def _likelihood(self, methods: tuple[str, ...]) -> Likelihood:
        built = {name: covariance.build(name) for name in methods}
        return Likelihood(self.denoiser, built, Decoder(17))

    def _noise_at(self, t: int) -> SampleNoise:
        return SampleNoise(t, range(len(self.x0)), tuple(self.x0.shape[1:]), draws=1)


def _evaluations() -> Measured:
    counts = []
    for work in (LikelihoodTable.together, LikelihoodTable.each_cell):
        counting = CountingDenoiser(IdentityNetwork(), schedules.linear(1000))
        work(LikelihoodTable.on(counting, 1, STEPS))
        counts.append(len(counting.asked))
    together, each = counts
    return Measured.exactly(together / each, evaluations=together, baseline_evaluations=each)


def _time() -> Measured:
    denoiser = Denoiser(small_unet(WIDTH), schedules.linear(SHORT[-1]))
    table = LikelihoodTable.on(denoiser, IMAGES, SHORT)
    compared = interleaved(table.together, table.each_cell, REPEATS, warm=False)
    return compared.measured(images=IMAGES, steps=SHORT, network=f"UNet of width {WIDTH}, 8×8")


def _timesteps() -> Measured:
    full, tenth = (Denoiser(small_unet(), schedules.linear(steps[-1])) for steps in (STEPS, SHORT))
    training = LikelihoodTable.on(full, TRAINING_IMAGES, ())
    test = LikelihoodTable.on(tenth, TEST_IMAGES, SHORT)
    compared = interleaved(
        lambda: training.optimal_timesteps(POINTS), test.together, TIMESTEPS_REPEATS, warm=False
    )
    whole = Comparison(compared.ours, [10 * seconds for seconds in compared.baseline])
    return whole.measured(images=(TRAINING_IMAGES, TEST_IMAGES), points=POINTS)


_TABLE = "the NLL table, 6 methods × K = 10 … 1000"
BENCHMARKS = [
    Benchmark(
        name="nll_table_evaluations",
        what=f"network evaluations an image, {_TABLE}",
        baseline="each cell by itself",
        target=1000 / 8310,
        measure=_evaluations,
        note="1,000 of 8,310",
    ),
    Benchmark(
        name="nll_table_time",
        what=f"time, {_TABLE}",
        baseline="each cell by itself",
        target=1 / 7,
        measure=_time,
        note="7 times faster",
    ),
    Benchmark(
        name="optimal_timesteps_time",
        what="time, optimal timesteps of every length, 6 methods",
        baseline=_TABLE,
        target=0.15,
        measure=_timesteps,
    ),
]
