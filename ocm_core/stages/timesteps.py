"""Compute what every step between timesteps costs on training images; optimal timesteps follow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ocm_core.pipeline.artifacts import Artifact
from ocm_core.pipeline.stage import Stage, Work
from ocm_core.schema.block import Params, require
from ocm_core.stages._networks import MODEL_KEYS, family_modules
from ocm_core.stages.encode import encode_tasks, open_split

if TYPE_CHECKING:
    from pathlib import Path

    from ocm_core.diffusion.denoiser import Denoiser
    from ocm_core.diffusion.timesteps import StepCosts, TimestepsByMethod
    from ocm_core.pipeline.job import Inputs, Job
    from ocm_core.pipeline.stage import Task
    from ocm_core.schema.experiment import Experiment
    from ocm_core.shapes import Batch, Labels
    from ocm_core.store.reader import StoredSplit


def _methods(experiment: Experiment, part: str) -> list[str]:
    settings = experiment.train.timesteps
    return list(settings.methods) if settings else []


def _takes(experiment: Experiment, part: str) -> list[Task]:
    from ocm_core.stages._denoiser import denoiser_tasks

    methods = _methods(experiment, part)
    return [*encode_tasks(experiment), *denoiser_tasks(experiment, methods, [part])]


def _work(experiment: Experiment, part: str) -> Work:
    settings = require(experiment.train.timesteps)
    return Work(float(settings.images * settings.points))


STAGE: Stage[Params] = Stage(
    __name__,
    "train",
    parts=lambda e: list(e.network.scores) if e.train.timesteps else [],
    takes=_takes,
    reads=(*MODEL_KEYS, "head", "sample.clip", "train.timesteps", "train.selection"),
    methods=_methods,
    plugins=lambda experiment, part: family_modules(experiment, [part]),
    gpu=True,
    memory=16_000,
    work=_work,
)


class StepCostTable(Artifact):
    """The mean term of the bound for every step of a grid, by method."""

    @property
    def file(self) -> Path:
        return self.folder / "step_costs.npz"

    def optimal(self) -> TimestepsByMethod:
        """Return the optimal timesteps of each method and number of steps."""
        return {label: costs.optimal() for label, costs in load_costs(self.file).items()}


def optimal_timesteps(job: Inputs, score: str) -> TimestepsByMethod:
    """Return optimal timesteps by method; none where the job does not take any."""
    table = job.find(StepCostTable, score)
    return {} if table is None else table.optimal()


def save_costs(file: Path, costs: Mapping[str, StepCosts]) -> None:
    """Save the tables; all methods share the grid and the prior's terms."""
    import numpy as np

    from ocm_core.io.atomic import replacing

    first = next(iter(costs.values()))
    tables: dict[str, Any] = {f"steps.{label}": table.steps for label, table in costs.items()}
    with replacing(file) as temporary, temporary.open("wb") as stream:
        np.savez(stream, timesteps=np.array(first.timesteps), ends=first.ends, **tables)


def load_costs(file: Path) -> dict[str, StepCosts]:
    import numpy as np

    from ocm_core.diffusion.timesteps import StepCosts

    with np.load(file) as tables:
        times, ends = tuple(tables["timesteps"].tolist()), np.array(tables["ends"])
        return {
            name.removeprefix("steps."): StepCosts(times, np.array(tables[name]), ends)
            for name in tables.files
            if name.startswith("steps.")
        }


def run(job: Job) -> None:
    from ocm_core.diffusion.timesteps import averaged
    from ocm_core.rng.streams import Stream, stream
    from ocm_core.stages._denoiser import load_denoiser

    settings, stored = require(job.experiment.train.timesteps), open_split(job, "train")
    drawn = stream(Stream.TIMESTEPS_ITEMS, settings.seed).permutation(len(stored))
    rows = sorted(drawn[: settings.images].tolist())
    denoiser = load_denoiser(job, job.part, job.experiment.methods)
    batches = [
        rows[first : first + settings.batch_size]
        for first in range(0, len(rows), settings.batch_size)
    ]
    costs = [_BatchCosts(job, stored, denoiser, batch).load() for batch in batches]
    weights = [len(batch) for batch in batches]
    save_costs(
        StepCostTable(job.folder).file,
        {label: averaged([part[label] for part in costs], weights) for label in costs[0]},
    )
    job.note(images=len(rows), timesteps=len(costs[0][settings.methods[0]].timesteps) - 1)


@dataclass(frozen=True)
class _BatchCosts:
    """The costs on one batch of training images, which survive an interruption."""

    job: Job
    stored: StoredSplit
    denoiser: Denoiser
    rows: list[int]

    def load(self) -> dict[str, StepCosts]:
        file = self.job.state / f"batch-{self.rows[0]}.npz"
        if not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True)
            save_costs(file, self._compute())
        return load_costs(file)

    def _compute(self) -> dict[str, StepCosts]:
        from ocm_core.covariance import build_all
        from ocm_core.covariance.interface import Clip
        from ocm_core.diffusion.gaussian import Decoder
        from ocm_core.diffusion.timesteps import grid
        from ocm_core.likelihood.bound import Likelihood
        from ocm_core.rng.noise import NoiseFor, SampleNoise

        experiment, device = self.job.experiment, self.job.device
        settings, limits = require(experiment.train.timesteps), experiment.sample.clip
        likelihood = Likelihood(
            self.denoiser,
            build_all(experiment.methods),
            Decoder(experiment.levels, settings.cdf, settings.decoder_variance),
            Clip(x0=limits.x0, c_max=limits.covariance),
        )
        x0, label = self._images()
        return likelihood.step_costs(
            grid(settings.grid, self.denoiser.schedule, settings.points),
            x0,
            lambda t: SampleNoise(
                settings.seed, self.rows, experiment.shape, device, NoiseFor.TIMESTEPS, draws=1
            ),
            label,
            progress=lambda times: self.job.progress(times, "terms of the bound"),
        )

    def _images(self) -> tuple[Batch, Labels]:
        import numpy as np
        import torch

        x0 = torch.from_numpy(self.stored.read(np.array(self.rows))).to(self.job.device)
        if not self.denoiser.network.conditional or self.stored.labels is None:
            return x0, None
        return x0, torch.from_numpy(self.stored.labels[self.rows]).to(self.job.device)
