"""What every step between timesteps of a grid costs on training images: optimal chains follow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from ocm_core.artifacts.chains import COSTS_FILE, load_costs, save_costs
from ocm_core.artifacts.encoded import open_split
from ocm_core.artifacts.heads import load_denoiser
from ocm_core.covariance import build_all
from ocm_core.covariance.interface import Clip
from ocm_core.diffusion.chains import StepCosts, averaged, grid
from ocm_core.diffusion.denoiser import Denoiser
from ocm_core.diffusion.gaussian import Decoder
from ocm_core.likelihood.bound import Likelihood
from ocm_core.rng.noise import SampleNoise, Use
from ocm_core.rng.streams import Purpose, stream
from ocm_core.schema.block import require
from ocm_core.schema.experiment import ChainCostParams
from ocm_core.shapes import Batch, Labels
from ocm_core.store.reader import StoredSplit

if TYPE_CHECKING:
    from ocm_core.pipeline.job import Job


def run(job: Job) -> None:
    settings = require(job.experiment.evaluate.chains)
    stored = open_split(job, "train")
    rows = _chosen_rows(settings, len(stored))
    table = _CostTable(job, stored, load_denoiser(job, job.part, job.experiment.methods))
    batches = [
        rows[first : first + settings.batch_size]
        for first in range(0, len(rows), settings.batch_size)
    ]
    found = [table.costs(batch) for batch in batches]
    weights = [len(batch) for batch in batches]
    save_costs(
        job.folder / COSTS_FILE,
        {label: averaged([costs[label] for costs in found], weights) for label in found[0]},
    )
    for file in job.folder.glob("batch-*"):
        file.unlink()
    job.note(images=len(rows), timesteps=len(found[0][settings.methods[0]].timesteps) - 1)


def _chosen_rows(settings: ChainCostParams, count: int) -> list[int]:
    """So many different training images, in their order in the store."""
    drawn = stream(Purpose.CHAINS_ITEMS, settings.seed).permutation(count)
    return sorted(drawn[: settings.images].tolist())


@dataclass(frozen=True)
class _CostTable:
    job: Job
    stored: StoredSplit
    denoiser: Denoiser

    def costs(self, rows: list[int]) -> dict[str, StepCosts]:
        """Of these images; what an interrupted run has finished is not computed again."""
        file = self.job.folder / f"batch-{rows[0]}.npz"
        if not file.exists():
            save_costs(file, self._costs(rows))
        return load_costs(file)

    def _costs(self, rows: list[int]) -> dict[str, StepCosts]:
        experiment, device = self.job.experiment, self.job.device
        settings, limits = require(experiment.evaluate.chains), experiment.sample.clip
        likelihood = Likelihood(
            self.denoiser,
            build_all(experiment.methods),
            Decoder(experiment.levels, settings.cdf, settings.decoder_variance),
            Clip(x0=limits.x0, c_max=limits.covariance),
        )
        x0, label = self._images(rows)
        return likelihood.step_costs(
            grid(settings.grid, self.denoiser.schedule, settings.points),
            x0,
            lambda t: SampleNoise(
                settings.seed, rows, experiment.shape, device, Use.CHAINS, draws=1
            ),
            label,
            progress=lambda times: self.job.progress(times, "terms of the bound"),
        )

    def _images(self, rows: list[int]) -> tuple[Batch, Labels]:
        x0 = torch.from_numpy(self.stored.read(np.array(rows))).to(self.job.device)
        if not self.denoiser.network.conditional or self.stored.labels is None:
            return x0, None
        return x0, torch.from_numpy(self.stored.labels[rows]).to(self.job.device)
