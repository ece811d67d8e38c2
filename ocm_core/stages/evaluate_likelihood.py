"""The variational bound on the test set: all DDPM methods and all K from one pass per timestep."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr
from numpy import ndarray
from torch import Tensor

from ocm_core.artifacts.encoded import open_split, read_rows
from ocm_core.artifacts.heads import load_denoiser
from ocm_core.artifacts.results import save
from ocm_core.covariance import build_all
from ocm_core.covariance.interface import Clip
from ocm_core.diffusion import chains
from ocm_core.diffusion.denoiser import Denoiser
from ocm_core.diffusion.gaussian import Decoder
from ocm_core.io.atomic import replacing
from ocm_core.likelihood.bound import Bound, Likelihood, Methods
from ocm_core.rng.noise import SampleNoise, Use
from ocm_core.schema.block import require

if TYPE_CHECKING:
    from ocm_core.pipeline.job import Job

TERMS = ("decoder", "steps", "prior")


def run(job: Job) -> None:
    experiment, settings = job.experiment, require(job.experiment.evaluate.likelihood)
    methods = build_all(experiment.methods)
    stored = open_split(job, "test")
    count = min(settings.images or len(stored), len(stored))
    batches = [
        range(first, min(first + settings.batch_size, count))
        for first in range(0, count, settings.batch_size)
    ]
    found = []
    for score in experiment.network.scores:
        table = LikelihoodTable(job, score, load_denoiser(job, score, methods), methods)
        found.append(np.concatenate([table.bits(rows) for rows in batches], axis=-1))
    save(job.folder, _summary(job, list(methods), np.stack(found)))
    for file in job.folder.glob("bits-*"):
        file.unlink()
    job.note(images=count)


@dataclass(frozen=True)
class LikelihoodTable:
    """One score's bits per dimension, over (method, steps, term, image)."""

    job: Job
    score: str
    denoiser: Denoiser
    methods: Methods

    def bits(self, rows: range) -> ndarray:
        """Of these images; what an interrupted run has finished is not computed again."""
        file = self.job.folder / f"bits-{self.score}-{rows.start}.npy"
        if not file.exists():
            with replacing(file) as temporary, temporary.open("wb") as stream:
                np.save(stream, self._bits(rows))
        return np.asarray(np.load(file))

    def _bits(self, rows: range) -> ndarray:
        settings = require(self.job.experiment.evaluate.likelihood)
        x0, label = read_rows(self.job, "test", rows, self.denoiser.network.conditional)
        places = {label: i for i, label in enumerate(self.methods)}
        bits = np.full((len(places), len(settings.steps), len(TERMS), len(rows)), np.nan)
        for steps, labels in settings.groups().items():
            bounds = self._bounds(labels, steps, rows, x0, label)
            for (chain, method), bound in bounds.items():
                bits[places[method], settings.steps.index(int(chain))] = bound.bits_per_dim.numpy()
        return bits

    def _bounds(
        self,
        labels: list[str],
        steps: tuple[int, ...],
        rows: range,
        x0: Tensor,
        label: Tensor | None,
    ) -> dict[tuple[str, str], Bound]:
        experiment, device = self.job.experiment, self.job.device
        settings, limits = require(experiment.evaluate.likelihood), experiment.sample.clip
        likelihood = Likelihood(
            self.denoiser,
            {name: self.methods[name] for name in labels},
            Decoder(experiment.levels, settings.cdf, settings.decoder_variance),
            Clip(x0=limits.x0, c_max=limits.covariance),
        )
        bounds, _ = likelihood.bounds(
            {str(k): chains.build(settings.chain, experiment.schedule.steps, k) for k in steps},
            x0,
            lambda t: SampleNoise(
                settings.seed, rows, experiment.shape, device, Use.LIKELIHOOD, t, first_block=1
            ),
            label,
            progress=lambda times: self.job.progress(times, f"bound for {', '.join(labels)}"),
        )
        return bounds


def _summary(job: Job, methods: list[str], bits: ndarray) -> xr.Dataset:
    """Means over images, and the standard error of their sum."""
    total = bits.sum(axis=3)
    dims = ("score", "method", "steps")
    coords = {
        "score": list(job.experiment.network.scores),
        "method": methods,
        "steps": list(require(job.experiment.evaluate.likelihood).steps),
        "term": list(TERMS),
    }
    variables = {
        "nll": (dims, total.mean(-1)),
        "nll_se": (dims, total.std(-1, ddof=1) / sqrt(total.shape[-1])),
        "nll_terms": ((*dims, "term"), bits.mean(-1)),
    }
    return xr.Dataset(variables, coords)
