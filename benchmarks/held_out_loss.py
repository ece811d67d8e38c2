"""The loss of a score network on held-out training images, after so many seconds of CPU time.

`python -m benchmarks.held_out_loss cifar10_small --seconds 270 train.score.batch_size=32` trains
the network as the stage `score` would, in one thread, with the learning rate decaying over as many
iterations as fit. The last tenth of the training images is held out. What the network of the whole
training has on test images is a stage, `score_loss`.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch

from benchmarks.measuring import seconds, single_thread
from ocm_core.datasets.base import Split
from ocm_core.diffusion.denoiser import Denoiser
from ocm_core.diffusion.gaussian import Decoder
from ocm_core.diffusion.schedule import q_sample
from ocm_core.networks.of_experiment import new_denoiser, new_score
from ocm_core.params.compose import compose
from ocm_core.rng.batches import BatchRng
from ocm_core.rng.streams import seed_torch
from ocm_core.schema.block import require
from ocm_core.schema.experiment import Experiment
from ocm_core.shapes import Batch
from ocm_core.stages.fetch_data import ARCHIVES
from ocm_core.training.loop import fit
from ocm_core.training.score_matching import ScoreMatching

HELD_OUT = 2000  # images that are looked at, two for each timestep
BATCH = 100
TRIAL = 20  # iterations that tell the time of one


@dataclass(frozen=True)
class MirroredItems:
    """The first images of a split and the same mirrored, without labels."""

    split: Split
    count: int
    levels: int

    def batch(self, rng: BatchRng) -> tuple[Batch, None]:
        rows = rng.items(2 * self.count)
        places = [int(row) % self.count for row in rows]
        found = torch.cat([self.read(range(place, place + 1)) for place in places])
        mirrored = torch.from_numpy(rows >= self.count)[:, None, None, None]
        return torch.where(mirrored, found.flip(-1), found), None

    def read(self, rows: range) -> Batch:
        values = self.split.read(rows).astype(np.float32)
        return torch.from_numpy(2 * values / (self.levels - 1) - 1)


def held_out_loss(experiment: Experiment, budget: float) -> tuple[int, float]:
    """Iterations, and the mean of (ε - ε̂)² over held-out images, timesteps and pixels."""
    split = experiment.data.open(ARCHIVES).splits["train"]
    items = MirroredItems(split, len(split) * 9 // 10, require(experiment.levels))
    trial = seconds(lambda: _trained(experiment, items, TRIAL)) / TRIAL
    iterations = int(budget / trial)
    matching = _trained(experiment, items, iterations)
    return iterations, _loss(matching.denoiser, items, items.count)


def _trained(experiment: Experiment, items: MirroredItems, iterations: int) -> ScoreMatching:
    """With the moving average in the place of the weights."""
    settings = require(experiment.train.score).model_copy(update={"iterations": iterations})
    seed_torch(settings.seed, "score")
    denoiser = new_denoiser(experiment, new_score(experiment, "learned"))
    precision = torch.bfloat16 if settings.precision == "bfloat16" else torch.float32
    matching = ScoreMatching(
        replace(denoiser, precision=precision), items, Decoder(experiment.levels)
    )
    with TemporaryDirectory() as folder:
        fit(matching, settings, Path(folder)).use_average()
    return matching


@torch.no_grad()
def _loss(denoiser: Denoiser, items: MirroredItems, begin: int) -> float:
    """Over the images from `begin` on."""
    schedule = denoiser.schedule
    denoiser.network.eval()
    source, losses = torch.Generator().manual_seed(0), []
    for first in range(0, HELD_OUT, BATCH):
        x0 = items.read(range(begin + first, begin + first + BATCH))
        t = torch.arange(first, first + BATCH) % schedule.steps + 1
        eps = torch.randn(x0.shape, generator=source)
        x = q_sample(x0, eps, *schedule.marginal_at(t, x0))
        losses.append((eps - denoiser.predict(x, t).eps).square().mean())
    return float(torch.stack(losses).mean())


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.held_out_loss", description=__doc__)
    parser.add_argument("experiment")
    parser.add_argument("override", nargs="*", help="key=value, as in Hydra")
    parser.add_argument("--seconds", type=float, default=270.0, help="of CPU time; default: 270")
    asked = parser.parse_intermixed_args()
    with single_thread():
        iterations, loss = held_out_loss(compose(asked.experiment, asked.override), asked.seconds)
    print(f"{iterations} iterations: {loss:.4f}")


if __name__ == "__main__":
    main()
