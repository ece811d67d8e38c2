"""The variational bound on the test set: all methods, chains and K from one pass per timestep.

Processes share the batches of images.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import product
from math import sqrt
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
import xarray as xr
from numpy import ndarray
from torch import Tensor

from ocm_core.artifacts.chains import optimal_chains
from ocm_core.artifacts.encoded import open_split, read_rows
from ocm_core.artifacts.heads import load_denoiser
from ocm_core.artifacts.machine import machine_class
from ocm_core.artifacts.results import save
from ocm_core.covariance import build_all
from ocm_core.covariance.interface import Clip
from ocm_core.diffusion.chains import Chain, OptimalChains, build
from ocm_core.diffusion.denoiser import Denoiser
from ocm_core.diffusion.gaussian import Decoder
from ocm_core.distributed import current_rank
from ocm_core.errors import OcmError
from ocm_core.io.state_file import load_state, save_state
from ocm_core.likelihood.bound import Bound, Likelihood, Methods
from ocm_core.rng.noise import SampleNoise, Use
from ocm_core.schema.block import require
from ocm_core.schema.chains import OptimalChain
from ocm_core.schema.experiment import LikelihoodParams

if TYPE_CHECKING:
    from ocm_core.pipeline.job import Job

TERMS = ("decoder", "steps", "prior")

LikelihoodCell = tuple[str, str, int]  # chain, method, K


def run(job: Job) -> None:
    experiment, settings = job.experiment, require(job.experiment.evaluate.likelihood)
    methods = build_all(experiment.methods)
    stored = open_split(job, "test")
    count = min(settings.images or len(stored), len(stored))
    batches = [
        range(first, min(first + settings.batch_size, count))
        for first in range(0, count, settings.batch_size)
    ]
    rank, found = current_rank(), []
    for score in experiment.network.scores:
        denoiser, optimal = load_denoiser(job, score, methods), optimal_chains(job, score)
        table = LikelihoodTable(job, score, denoiser, methods, optimal)
        missing = rank.agreed(partial(table.missing, batches))
        for rows in rank.mine(missing):
            table.compute(rows)
        rank.wait()
        if rank.is_first:
            found.append(np.concatenate([table.bits(rows) for rows in batches], axis=-1))
    if rank.is_first:
        save(job.folder, _summary(job, list(methods), np.stack(found)))
    job.note(images=count, machine=machine_class(job))


@dataclass(frozen=True)
class LikelihoodTable:
    """One score's bits per dimension, over (chain, method, steps, term, image)."""

    job: Job
    score: str
    denoiser: Denoiser
    methods: Methods
    optimal: OptimalChains

    def missing(self, batches: list[range]) -> list[range]:
        """What no run has finished before it was interrupted."""
        return [rows for rows in batches if load_state(self._file(rows)) is None]

    def compute(self, rows: range) -> None:
        save_state(self._file(rows), {"bits": torch.from_numpy(self._bits(rows))}, None)

    def bits(self, rows: range) -> ndarray:
        """Of these images, once some process has computed them."""
        computed = load_state(self._file(rows))
        if computed is None:
            raise OcmError(f"{self._file(rows)}: lost while others were computed; run it again")
        return computed.tensors["bits"].numpy()

    def _file(self, rows: range) -> Path:
        return self.job.state / f"bits-{self.score}-{rows.start}.safetensors"

    def _bits(self, rows: range) -> ndarray:
        settings = self._settings
        x0, label = read_rows(self.job, "test", rows, self.denoiser.network.conditional)
        size = (len(settings.chains), len(self.methods), len(settings.steps), len(TERMS), len(rows))
        bits = np.full(size, np.nan)
        chains, labels = list(settings.chains), list(self.methods)
        for lengths, group in settings.groups().items():
            cells = [cell for cell in product(chains, group, lengths) if self._exists(*cell)]
            for (chain, method, steps), bound in self._bounds(group, cells, rows, x0, label):
                place = chains.index(chain), labels.index(method), settings.steps.index(steps)
                bits[place] = bound.bits_per_dim.cpu().numpy()
        return bits

    @property
    def _settings(self) -> LikelihoodParams:
        return require(self.job.experiment.evaluate.likelihood)

    def _exists(self, chain: str, method: str, steps: int) -> bool:
        """Optimal chains are those of some methods, and as long as the grid they are chosen on."""
        params = self._settings.chains[chain]
        if not isinstance(params, OptimalChain):
            return True
        return steps in self.optimal.get(params.of or method, {})

    def _bounds(
        self,
        labels: list[str],
        cells: list[LikelihoodCell],
        rows: range,
        x0: Tensor,
        label: Tensor | None,
    ) -> Iterator[tuple[LikelihoodCell, Bound]]:
        experiment, device = self.job.experiment, self.job.device
        settings, limits = self._settings, experiment.sample.clip
        likelihood = Likelihood(
            self.denoiser,
            {name: self.methods[name] for name in labels},
            Decoder(experiment.levels, settings.cdf, settings.decoder_variance),
            Clip(x0=limits.x0, c_max=limits.covariance),
        )
        walks = {(f"{chain} of K = {k}", method): (chain, method, k) for chain, method, k in cells}
        bounds, _ = likelihood.bounds_on(
            {walk: self._chain(*cell) for walk, cell in walks.items()},
            x0,
            lambda t: SampleNoise(
                settings.seed, rows, experiment.shape, device, Use.LIKELIHOOD, t, draws=1
            ),
            label,
            progress=lambda times: self.job.progress(times, f"bound for {', '.join(labels)}"),
        )
        for walk, bound in bounds.items():
            yield walks[walk], bound

    def _chain(self, chain: str, method: str, steps: int) -> Chain:
        params = self._settings.chains[chain]
        return build(params, self.denoiser.schedule, steps, method, self.optimal)


def _summary(job: Job, methods: list[str], bits: ndarray) -> xr.Dataset:
    """Means over images with their errors: of the sum, and of it less the first chain's.

    Chains see the same images with the same noise, so that they differ by less than each is off.
    """
    total = bits.sum(axis=4)
    difference = total - total[:, :1]
    dims = ("score", "chain", "method", "steps")
    coords = {
        "score": list(job.experiment.network.scores),
        "chain": list(require(job.experiment.evaluate.likelihood).chains),
        "method": methods,
        "steps": list(require(job.experiment.evaluate.likelihood).steps),
        "term": list(TERMS),
    }
    variables = {
        "nll": (dims, total.mean(-1)),
        "nll_se": (dims, _standard_error(total)),
        "nll_difference": (dims, difference.mean(-1)),
        "nll_difference_se": (dims, _standard_error(difference)),
        "nll_terms": ((*dims, "term"), bits.mean(-1)),
    }
    return xr.Dataset(variables, coords)


def _standard_error(values: ndarray) -> ndarray:
    """Over images, which are the last axis."""
    deviation: ndarray = values.std(-1, ddof=1)
    return deviation / sqrt(values.shape[-1])
