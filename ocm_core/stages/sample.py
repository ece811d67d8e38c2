"""Draw the samples of one part's cells."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from itertools import groupby
from typing import TYPE_CHECKING, Any

from ocm_core.cells import Cell, cells_of, parts
from ocm_core.pipeline.artifacts import Artifact
from ocm_core.pipeline.stage import Stage, Task, Work
from ocm_core.sampling import modules_of
from ocm_core.schema.block import Params
from ocm_core.schema.experiment import PresetParams, SamplerParams
from ocm_core.stages._networks import MODEL_KEYS, family_modules
from ocm_core.stages.timesteps import StepCostTable, optimal_timesteps

if TYPE_CHECKING:
    from pathlib import Path

    from numpy import ndarray
    from torch import Tensor

    from ocm_core.pipeline.job import Inputs, Job
    from ocm_core.schema.experiment import Experiment, Sampler
    from ocm_core.schema.timesteps import TimestepsParams
    from ocm_core.store.layout import StoreLayout
    from ocm_core.store.reader import StoredSplit

    Draw = Callable[[Cell, range], tuple[ndarray, Mapping[str, int]]]  # samples, clamped entries


def _methods(experiment: Experiment, part: str) -> list[str]:
    return sorted({cell.method for cell in cells_of(experiment, part)})


def _scores(experiment: Experiment, part: str) -> list[str]:
    return list(dict.fromkeys(cell.score for cell in cells_of(experiment, part)))


def _samplers(experiment: Experiment, part: str) -> dict[str, Sampler]:
    labels = dict.fromkeys(cell.sampler for cell in cells_of(experiment, part))
    return {label: experiment.sample.samplers[label] for label in labels}


def timesteps_of(samplers: Iterable[Sampler]) -> Iterator[TimestepsParams]:
    """Yield the timestep rules that samplers use; solvers of diffusers have their own."""
    for sampler in samplers:
        if isinstance(sampler, PresetParams):
            preset = import_module("ocm_core.sampling.presets").PRESETS[sampler.name]
            yield from (recipe.timesteps for recipe in preset.recipes.values())
        elif isinstance(sampler, SamplerParams):
            yield sampler.timesteps


def optimal_tasks(rules: Iterable[TimestepsParams], scores: Iterable[str]) -> list[Task]:
    """Return the tasks that optimal timesteps come from, if any of these rules is optimal."""
    optimal = any(rule.kind == "optimal" for rule in rules)
    return [StepCostTable.task(score) for score in scores] if optimal else []


def _takes(experiment: Experiment, part: str) -> list[Task]:
    return _taken(experiment, cells_of(experiment, part))


def _taken(experiment: Experiment, cells: Iterable[Cell]) -> list[Task]:
    """Return the tasks that these cells are drawn from."""
    from ocm_core.stages._denoiser import denoiser_tasks

    tasks: list[Task] = []
    for cell in cells:
        rules = timesteps_of([experiment.sample.samplers[cell.sampler]])
        tasks += denoiser_tasks(experiment, [cell.method], [cell.score])
        tasks += optimal_tasks(rules, [cell.score])
    return tasks


def _reads(experiment: Experiment, part: str) -> list[str]:
    fixed = ("count", "batch_size", "seeds", "clip", "guidance", "execution", "split")
    return [
        *MODEL_KEYS,
        *("encode.jobs", "head", "train.selection"),
        *(f"sample.{key}" for key in fixed),
        *(f"sample.samplers.{label}" for label in _samplers(experiment, part)),
    ]


def _plugins(experiment: Experiment, part: str) -> list[str]:
    samplers = _samplers(experiment, part).values()
    chosen = {module for sampler in samplers for module in modules_of(sampler)}
    return [*family_modules(experiment, _scores(experiment, part)), *sorted(chosen)]


def _modules(experiment: Experiment, cell: Cell) -> list[str]:
    """Return where the code of one cell begins."""
    return [
        __name__,
        f"ocm_core.covariance.{experiment.methods[cell.method].kind}",
        *family_modules(experiment, [cell.score]),
        *modules_of(experiment.sample.samplers[cell.sampler]),
    ]


def _work(experiment: Experiment, part: str) -> Work:
    """Passes of all samples; guidance evaluates the network twice, probes cost two passes each."""
    per_sample = 0.0
    for cell in cells_of(experiment, part):
        method = experiment.methods[cell.method]
        probes = float(method.options.get("probes", 0)) if method.needs == "nothing" else 0.0
        rows = 1 if cell.guidance == 1.0 else 2
        per_sample += cell.nfe * rows * (1 + 2 * probes)
    return Work(per_sample * experiment.sample.count)


STAGE: Stage[Params] = Stage(
    __name__,
    "sample",
    parts=lambda experiment: list(parts(experiment)),
    takes=_takes,
    reads=_reads,
    methods=_methods,
    plugins=_plugins,
    shared=True,
    gpu=True,
    memory=16_000,
    work=_work,
)


def sample_tasks(experiment: Experiment) -> list[Task]:
    return [Samples.task(part) for part in parts(experiment)]


def store_name(cell: Cell) -> str:
    """Name the store of all cells that differ in their seed alone."""
    guidance = "" if cell.guidance == 1.0 else f"-cfg{cell.guidance}"
    return f"{cell.score}-{cell.sampler}-{cell.method}-nfe{cell.nfe}{guidance}"


@dataclass(frozen=True)
class CellSamples:
    """The samples of one cell, and the share of covariance entries that were clamped."""

    stored: StoredSplit
    first: int
    count: int
    clamped: float

    def read(self, rows: range) -> Tensor:
        import torch

        shifted = range(self.first + rows.start, self.first + rows.stop)
        return torch.from_numpy(self.stored.read(shifted))

    def all(self) -> Tensor:
        return self.read(range(self.count))


class Samples(Artifact):
    """A Zarr store for all cells that differ in their seed alone, one seed after another.

    Beside each store lies how many entries of the covariance were clamped, batch by batch.
    """

    def read(self, cell: Cell) -> CellSamples:
        from ocm_core.store.reader import open_split

        name = store_name(cell)
        stored = open_split([self.folder / name], "samples")
        seeds = stored.attrs["seeds"]
        count, place = len(stored) // len(seeds), seeds.index(cell.seed)
        counts = Counter[str]()
        for file in (self.folder / name / "clamped").glob("*.json"):
            counts.update(json.loads(file.read_text()).get(str(cell.seed), {}))
        clamped = (counts["below"] + counts["above"]) / max(1, counts["entries"])
        return CellSamples(stored, place * count, count, clamped)


def run(job: Job) -> None:
    from ocm_core.diffusion.denoiser import executed
    from ocm_core.distributed import current_rank
    from ocm_core.sampling.recipe import class_labels, draw_rows, of_cell
    from ocm_core.stages._denoiser import load_denoiser

    experiment = job.experiment
    cells = cells_of(experiment, job.part)
    groups = [list(group) for _, group in groupby(cells, key=store_name)]
    missing = current_rank().agreed(
        lambda: [
            group
            for group in groups
            if not job.reuse(
                store_name(group[0]), _modules(experiment, group[0]), **_facts(job, group)
            )
        ]
    )
    scores = dict.fromkeys(cell.score for group in missing for cell in group)
    models = {
        score: executed(
            load_denoiser(job, score, sorted({c.method for c in cells if c.score == score})),
            **experiment.sample.execution.model_dump(),
        )
        for score in scores
    }
    optimal = {score: optimal_timesteps(job, score) for score in scores}

    def draw(cell: Cell, rows: range) -> tuple[ndarray, Mapping[str, int]]:
        model, device = models[cell.score], job.device
        recipe = of_cell(experiment, cell, optimal[cell.score])
        label = class_labels(model, experiment.data.classes, cell.seed, rows, device)
        drawn = draw_rows(recipe, model, experiment.shape, rows, cell.seed, label, device=device)
        return drawn.x.cpu().numpy(), drawn.clipped

    for group in job.progress(missing, "sampling"):
        SampleStore(job, group).write(draw)
    job.note(cells=len(cells), samples_per_cell=experiment.sample.count)


def _facts(job: Inputs, group: list[Cell]) -> dict[str, Any]:
    """Return all that the samples of these cells depend on, and nothing of other cells."""
    experiment, cell = job.experiment, group[0]
    sample, method = experiment.sample, experiment.methods[cell.method]
    latent = experiment.encode.latent
    fixed = sample.model_dump(mode="json", exclude={"samplers", "seeds", "split"})
    recipe = sample.samplers[cell.sampler].model_dump(mode="json", exclude={"grids", "methods"})
    return {
        "cells": [vars(cell) for cell in group],
        "data": experiment.data.model_dump(mode="json"),
        "latent": latent and latent.model_dump(mode="json"),
        "schedule": experiment.schedule.model_dump(mode="json"),
        "network": experiment.network.model_dump(mode="json", exclude={"scores"}),
        "recipe": recipe,
        "sample": fixed,
        "method": method.model_dump(mode="json"),
        "head": experiment.head.form(method).model_dump(mode="json"),
        "inputs": dict(_input_digests(job, cell)),
    }


def _input_digests(job: Inputs, cell: Cell) -> Iterator[tuple[str, str]]:
    """Yield digests of the files that a cell's samples come from: of heads, its method's only."""
    for task in dict.fromkeys(_taken(job.experiment, [cell])):
        if task not in job.folders:
            continue
        for name, record in Artifact(job.folders[task]).manifest.files.items():
            own = not name.startswith("heads/") or name == f"heads/{cell.method}.safetensors"
            if own and not name.startswith("curve"):
                yield f"{task}/{name}", record.sha256


@dataclass(frozen=True)
class SampleStore:
    """The store of `cells`, filled batch by batch; a batch is a shard, which has one writer."""

    job: Job
    cells: list[Cell]

    def write(self, draw: Draw) -> None:
        """Draw what is not there yet, shared among processes."""
        from ocm_core.distributed import current_rank
        from ocm_core.store import writer
        from ocm_core.store.layout import store_path

        path, rank = store_path(self._folder, "samples"), current_rank()
        if rank.is_first:
            writer.begin(path, self._layout, {"seeds": [cell.seed for cell in self.cells]})
        mine = rank.mine(rank.agreed(lambda: self._missing(path)))
        writer.write_shards(path, self._layout, mine, lambda rows: self._batch(rows, draw))
        rank.wait()
        if rank.is_first:
            writer.verify(path, self._layout)

    @property
    def _folder(self) -> Path:
        return self.job.folder / store_name(self.cells[0])

    @property
    def _layout(self) -> StoreLayout:
        from ocm_core.store.layout import StoreLayout

        experiment = self.job.experiment
        total = experiment.sample.count * len(self.cells)
        batch = min(experiment.sample.batch_size, total)
        return StoreLayout(
            items=range(total), shape=experiment.shape, dtype="float32", chunk=batch, shard=batch
        )

    def _batch(self, rows: range, draw: Draw) -> dict[str, ndarray]:
        """Draw a batch, which may span the end of one seed's samples and the next's beginning."""
        import numpy as np

        from ocm_core.io.atomic import write_text
        from ocm_core.io.checksums import record_checksum

        count = self.job.experiment.sample.count
        drawn, clamped = [], {}
        for place, cell in enumerate(self.cells):
            first, stop = place * count, (place + 1) * count
            indices = range(max(rows.start, first) - first, min(rows.stop, stop) - first)
            if indices:
                samples, counts = draw(cell, indices)
                drawn.append(samples)
                clamped[cell.seed] = dict(sorted(counts.items()))
        file = self._clamped(rows)
        write_text(file, json.dumps(clamped) + "\n")
        record_checksum(file)
        return {"x": np.concatenate(drawn)}

    def _missing(self, path: Path) -> list[range]:
        """Return the batches that are not there as they were written."""
        from ocm_core.io.checksums import is_intact
        from ocm_core.store import writer

        lacking = writer.missing(path, self._layout)
        return [b for b in self._layout.shards if b in lacking or not is_intact(self._clamped(b))]

    def _clamped(self, rows: range) -> Path:
        return self._folder / "clamped" / f"{rows.start}.json"
