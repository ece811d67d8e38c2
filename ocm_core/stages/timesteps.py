"""Compute what every step between timesteps costs on training images; optimal timesteps follow."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch

from ocm_core.covariance import build_all
from ocm_core.covariance.interface import Clip
from ocm_core.diffusion.gaussian import Decoder
from ocm_core.diffusion.timesteps import (
    Timesteps,
    TimestepsByMethod,
    averaged,
    grid,
    step_costs_of,
    step_tables,
)
from ocm_core.io.atomic import replacing
from ocm_core.likelihood.bound import Likelihood
from ocm_core.pipeline.pieces import PartialResult, computed
from ocm_core.rng.batches import batches
from ocm_core.rng.noise import NoiseFor, SampleNoise
from ocm_core.rng.streams import Stream, stream
from ocm_core.sampling.trajectories import Trajectories
from ocm_core.schema.timesteps import GITS
from ocm_core.stages import Artifact, Inputs, Job, Params, Stage, Work, require
from ocm_core.stages._networks import evaluating
from ocm_core.stages.encode import open_split, read_rows
from ocm_core.stages.heads import load_denoiser

BOUNDS, TRAJECTORIES = "step_costs.npz", "trajectory_costs.npz"
STAGE: Stage[Params] = Stage(
    __name__,
    "train",
    parts=lambda e: list(e.network.scores) if e.train.timesteps else [],
    **evaluating(
        "sample.clip", "train.timesteps", methods=lambda e, part: require(e.train.timesteps).methods
    ),
    work=lambda e, part: Work(
        ((s := require(e.train.timesteps)).images + (s.trajectories or 0)) * s.points
    ),
)


class StepCostTable(Artifact):
    """The mean cost of every step of a grid: a method's term of the bound, or a deviation."""


def optimal_timesteps(job: Inputs, score: str) -> TimestepsByMethod:
    """Return optimal timesteps by method, and of `gits`; none where the job does not take any."""
    table = job.find(StepCostTable, score)
    if table is None:
        return {}
    found: dict[str, dict[int, Timesteps]] = {}
    for file in filter(Path.exists, (table.folder / BOUNDS, table.folder / TRAJECTORIES)):
        with np.load(file) as tables:
            for label, costs in step_costs_of(tables).items():
                found[label] = costs.optimal()
                for variance in costs.decoders:
                    found[f"{label}/{variance}"] = costs.decoded(variance).optimal()
    return found


def run(job: Job) -> None:
    """Average the costs over batches of training images, and over trajectories if any are asked."""
    experiment, settings = job.experiment, require(job.experiment.train.timesteps)
    stored, limits = open_split(job, "train"), experiment.sample.clip
    drawn = stream(Stream.TIMESTEPS_ITEMS, settings.seed).permutation(len(stored))
    denoiser = load_denoiser(job, job.part, experiment.methods)
    clip = Clip(x0=limits.x0, c_max=limits.covariance)
    decoder = Decoder(experiment.levels, settings.cdf, settings.decoder_variance)
    likelihood = Likelihood(denoiser, build_all(experiment.methods), decoder, clip)
    times = grid(settings.grid, denoiser.schedule, settings.points)

    def compute(source: Likelihood | Trajectories, batch: np.ndarray) -> PartialResult:
        x0, label = read_rows(job, "train", batch, denoiser.network.conditional)
        whose = (settings.seed, batch.tolist(), experiment.shape, job.device)
        costs = source.step_costs(
            times,
            x0,
            lambda t: SampleNoise(*whose, NoiseFor.TIMESTEPS, draws=1),
            label,
            progress=lambda times: job.progress(times, "terms"),
        )
        tables = {name: torch.from_numpy(table) for name, table in step_tables(costs).items()}
        return tables, len(batch)

    rows = np.sort(drawn[: settings.images])
    _average(job, BOUNDS, rows, partial(compute, likelihood))
    if settings.trajectories:
        seen = np.sort(drawn[: settings.trajectories])
        _average(job, TRAJECTORIES, seen, partial(compute, Trajectories(denoiser, clip)))
        job.note(trajectories=len(seen))
    job.note(images=len(rows), timesteps=len(times))


def _average(
    job: Job, file: str, rows: np.ndarray, compute: Callable[[np.ndarray], PartialResult]
) -> None:
    """Write the mean costs over the items of these rows."""
    ranges = batches(len(rows), require(job.experiment.train.timesteps).batch_size)
    name = file.partition(".")[0]
    cut = {f"{name}-{batch.start}": rows[batch.start : batch.stop] for batch in ranges}
    states = computed(job, cut, compute, name.replace("_", " "))
    tables = ({name: t.numpy() for name, t in state.tensors.items()} for state in states)
    costs = [step_costs_of(table) for table in tables]
    weights, labels = [state.facts for state in states], [*job.experiment.methods, GITS]
    mean = {k: averaged([c[k] for c in costs], weights) for k in labels if k in costs[0]}
    with replacing(job.folder / file) as temporary, temporary.open("wb") as opened:
        np.savez(opened, **step_tables(mean))  # type: ignore[arg-type]
