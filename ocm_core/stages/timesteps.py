"""Compute what every step between timesteps costs on training images; optimal timesteps follow."""

from collections.abc import Mapping

import numpy as np
import torch

from ocm_core.covariance import build_all
from ocm_core.covariance.interface import Clip
from ocm_core.diffusion.gaussian import Decoder
from ocm_core.diffusion.timesteps import StepCosts, TimestepsByMethod, averaged, grid
from ocm_core.io.atomic import replacing
from ocm_core.likelihood.bound import Likelihood
from ocm_core.rng.noise import NoiseFor, SampleNoise
from ocm_core.rng.streams import Stream, stream
from ocm_core.stages import Artifact, Inputs, Job, Params, Stage, Work, require
from ocm_core.stages._networks import evaluating
from ocm_core.stages._results import PartialResult, batches, computed
from ocm_core.stages.encode import open_split, read_rows
from ocm_core.stages.heads import load_denoiser

FILE = "step_costs.npz"
STAGE: Stage[Params] = Stage(
    __name__,
    "train",
    parts=lambda e: list(e.network.scores) if e.train.timesteps else [],
    **evaluating(
        "sample.clip", "train.timesteps", methods=lambda e, part: require(e.train.timesteps).methods
    ),
    work=lambda e, part: Work((s := require(e.train.timesteps)).images * s.points),
)


class StepCostTable(Artifact):
    """The mean term of the bound for every step of a grid, by method."""


def optimal_timesteps(job: Inputs, score: str) -> TimestepsByMethod:
    """Return optimal timesteps by method; none where the job does not take any."""
    table = job.find(StepCostTable, score)
    if table is None:
        return {}
    with np.load(table.folder / FILE) as tables:
        return {label: costs.optimal() for label, costs in _costs(tables).items()}


def _tables(costs: Mapping[str, StepCosts]) -> dict[str, np.ndarray]:
    """Return what is saved; all methods share the grid and the prior's terms."""
    first = next(iter(costs.values()))
    shared = {"timesteps": np.array(first.timesteps), "ends": first.ends}
    return shared | {f"steps.{label}": table.steps for label, table in costs.items()}


def _costs(tables: Mapping[str, np.ndarray]) -> dict[str, StepCosts]:
    times, ends = tuple(tables["timesteps"].tolist()), np.array(tables["ends"])
    return {
        name.removeprefix("steps."): StepCosts(times, np.array(steps), ends)
        for name, steps in tables.items()
        if name.startswith("steps.")
    }


def run(job: Job) -> None:
    """Average the costs over batches of training images."""
    settings, stored = require(job.experiment.train.timesteps), open_split(job, "train")
    drawn = stream(Stream.TIMESTEPS_ITEMS, settings.seed).permutation(len(stored))
    rows = np.sort(drawn[: settings.images])
    experiment, device, limits = job.experiment, job.device, job.experiment.sample.clip
    denoiser = load_denoiser(job, job.part, experiment.methods)
    likelihood = Likelihood(
        denoiser,
        build_all(experiment.methods),
        Decoder(experiment.levels, settings.cdf, settings.decoder_variance),
        Clip(x0=limits.x0, c_max=limits.covariance),
    )

    def compute(batch: np.ndarray) -> PartialResult:
        x0, label = read_rows(job, "train", batch, denoiser.network.conditional)
        whose = (settings.seed, batch.tolist(), experiment.shape, device)
        costs = likelihood.step_costs(
            grid(settings.grid, denoiser.schedule, settings.points),
            x0,
            lambda t: SampleNoise(*whose, NoiseFor.TIMESTEPS, draws=1),
            label,
            progress=lambda times: job.progress(times, "terms of the bound"),
        )
        return {name: torch.from_numpy(table) for name, table in _tables(costs).items()}, len(batch)

    ranges = batches(len(rows), settings.batch_size)
    cut = {f"batch-{batch.start}": rows[batch.start : batch.stop] for batch in ranges}
    states = computed(job, cut, compute, "step costs")
    costs = [_costs({name: t.numpy() for name, t in state.tensors.items()}) for state in states]
    weights = [state.facts for state in states]
    mean = {k: averaged([part[k] for part in costs], weights) for k in experiment.methods}
    with replacing(job.folder / FILE) as temporary, temporary.open("wb") as opened:
        np.savez(opened, **_tables(mean))  # type: ignore[arg-type]
    job.note(images=len(rows), timesteps=len(mean[settings.methods[0]].timesteps) - 1)
