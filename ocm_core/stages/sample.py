"""Draw the samples of one part's cells."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ocm_core.cells import Cell, cells_of, parts
from ocm_core.diffusion.denoiser import executed
from ocm_core.distributed import current_rank
from ocm_core.io.atomic import write_text
from ocm_core.io.checksums import is_intact, record_checksum
from ocm_core.sampling import modules_of
from ocm_core.sampling.recipe import class_labels, draw_rows, of_cell
from ocm_core.schema.experiment import PresetParams, Sampler, SamplerParams
from ocm_core.stages import Artifact, Experiment, Inputs, Job, Params, Stage, Task, Work
from ocm_core.stages._networks import MODEL_KEYS, denoiser_tasks, score_modules
from ocm_core.stages.heads import load_denoiser
from ocm_core.stages.timesteps import StepCostTable, optimal_timesteps
from ocm_core.store import writer
from ocm_core.store.reader import StoredSplit, open_split, store_path

Draw = Callable[[Cell, range], tuple[np.ndarray, Mapping[str, int]]]  # samples, clamped entries


def _along(experiment: Experiment, part: str, axis: str) -> list[str]:
    """Return the values that the cells of a part have along an axis."""
    return list(dict.fromkeys(getattr(cell, axis) for cell in cells_of(experiment, part)))


def _is_optimal(sampler: Sampler) -> bool:
    """Whether a sampler visits optimal timesteps; solvers of diffusers have their own."""
    if isinstance(sampler, PresetParams):
        preset = import_module("ocm_core.sampling.presets").PRESETS[sampler.name]
        return any(recipe.timesteps.kind == "optimal" for recipe in preset.recipes.values())
    return isinstance(sampler, SamplerParams) and sampler.timesteps.kind == "optimal"


def _taken(experiment: Experiment, cells: Iterable[Cell]) -> list[Task]:
    """Return the tasks that these cells are drawn from."""
    tasks: list[Task] = []
    for cell in cells:
        tasks += denoiser_tasks(experiment, [cell.method], [cell.score])
        if _is_optimal(experiment.sample.samplers[cell.sampler]):
            tasks.append(StepCostTable.task(cell.score))
    return tasks


def _reads(experiment: Experiment, part: str) -> list[str]:
    keys = ["count", "batch_size", "seeds", "clip", "guidance", "execution", "split"]
    keys += [f"samplers.{label}" for label in _along(experiment, part, "sampler")]
    own = ("encode.jobs", "head", "train.selection")
    return [*MODEL_KEYS, *own, *(f"sample.{key}" for key in keys)]


def _modules(experiment: Experiment, cell: Cell) -> list[str]:
    """Return where the code of one cell begins."""
    return [
        __name__,
        f"ocm_core.covariance.{experiment.methods[cell.method].kind}",
        *score_modules(experiment, [cell.score]),
        *modules_of(experiment.sample.samplers[cell.sampler]),
    ]


def _work(experiment: Experiment, part: str) -> Work:
    """Passes of all samples; guidance evaluates the network twice, probes cost two passes each."""
    passes = [
        cell.nfe * (1 + (cell.guidance != 1.0)) * (1 + 2 * experiment.methods[cell.method].products)
        for cell in cells_of(experiment, part)
    ]
    return Work(sum(passes) * experiment.sample.count)


STAGE: Stage[Params] = Stage(
    __name__,
    "sample",
    parts=lambda experiment: list(parts(experiment)),
    takes=lambda experiment, part: _taken(experiment, cells_of(experiment, part)),
    reads=_reads,
    methods=lambda experiment, part: sorted(_along(experiment, part, "method")),
    plugins=lambda e, part: {m for cell in cells_of(e, part) for m in _modules(e, cell)},
    shared=True,
    gpu=True,
    work=_work,
)


def sample_tasks(experiment: Experiment) -> list[Task]:
    """Return the tasks whose artifacts are all samples of the experiment."""
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

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, rows: slice) -> torch.Tensor:
        start, stop, _ = rows.indices(self.count)
        return torch.from_numpy(self.stored.read(range(self.first + start, self.first + stop)))


class Samples(Artifact):
    """A Zarr store for all cells that differ in their seed alone, and counts of clamped entries."""

    def read(self, cell: Cell) -> CellSamples:
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
    """Draw what is missing, and take over the stores whose cells depend on nothing new."""
    experiment = job.experiment
    cells = cells_of(experiment, job.part)
    groups = [list(group) for _, group in groupby(cells, key=store_name)]

    def is_reused(group: list[Cell]) -> bool:
        modules = _modules(experiment, group[0])
        return job.reuse(store_name(group[0]), modules, **_facts(job, group))

    missing = current_rank().agreed(lambda: [g for g in groups if not is_reused(g)])
    scores = dict.fromkeys(cell.score for group in missing for cell in group)
    models = {
        score: executed(
            load_denoiser(job, score, sorted({c.method for c in cells if c.score == score})),
            **experiment.sample.execution.model_dump(),
        )
        for score in scores
    }
    optimal = {score: optimal_timesteps(job, score) for score in scores}

    def draw(cell: Cell, rows: range) -> tuple[np.ndarray, Mapping[str, int]]:
        model, device = models[cell.score], job.device
        recipe = of_cell(experiment, cell, optimal[cell.score])
        label = class_labels(model, experiment.data.classes, cell.seed, rows, device)
        drawn = draw_rows(recipe, model, experiment.shape, rows, cell.seed, label, device=device)
        return drawn.x.cpu().numpy(), drawn.clipped

    for group in job.progress(missing, "sampling"):
        write_store(job, group, draw)
    job.note(cells=len(cells), samples_per_cell=experiment.sample.count)


def _facts(job: Inputs, group: list[Cell]) -> dict[str, Any]:
    """Return all that the samples of these cells depend on, and nothing of other cells."""
    experiment, cell = job.experiment, group[0]
    sample, method = experiment.sample, experiment.methods[cell.method]
    sampler, latent = sample.samplers[cell.sampler], experiment.encode.latent
    head = f"heads/{cell.method}.safetensors"
    return {
        "cells": [vars(cell) for cell in group],
        "data": experiment.data.model_dump(mode="json"),
        "latent": latent and latent.model_dump(mode="json"),
        "schedule": experiment.schedule.model_dump(mode="json"),
        "network": experiment.network.model_dump(mode="json", exclude={"scores"}),
        "recipe": sampler.model_dump(mode="json", exclude={"grids", "methods"}),
        "sample": sample.model_dump(mode="json", exclude={"samplers", "seeds", "split"}),
        "method": method.model_dump(mode="json"),
        "head": experiment.head.form(method).model_dump(mode="json"),
        "inputs": {
            f"{task}/{name}": record.sha256
            for task in _taken(experiment, [cell])
            if task in job.folders
            for name, record in Artifact(job.folders[task]).manifest.files.items()
            if not name.startswith(("heads/", "curve")) or name == head
        },
    }


def write_store(job: Job, cells: list[Cell], draw: Draw) -> None:
    """Draw what is missing in the store of `cells`: a batch is a shard, which has one writer."""
    experiment, count, rank = job.experiment, job.experiment.sample.count, current_rank()
    total, shape = count * len(cells), experiment.shape
    size = min(experiment.sample.batch_size, total)
    plan = writer.StoreLayout(
        items=range(total), shape=shape, dtype="float32", chunk=size, shard=size
    )
    folder = job.folder / store_name(cells[0])
    path = store_path(folder, "samples")

    def clamped_file(batch: range) -> Path:
        return folder / "clamped" / f"{batch.start}.json"

    def missing() -> list[range]:
        lacking = writer.missing(path, plan)
        return [b for b in plan.shards if b in lacking or not is_intact(clamped_file(b))]

    def draw_batch(batch: range) -> dict[str, np.ndarray]:
        drawn, clamped = [], {}
        for place, cell in enumerate(cells):
            first = place * count
            if rows := range(max(batch.start - first, 0), min(batch.stop - first, count)):
                samples, counts = draw(cell, rows)
                drawn.append(samples)
                clamped[cell.seed] = dict(sorted(counts.items()))
        write_text(clamped_file(batch), json.dumps(clamped) + "\n")
        record_checksum(clamped_file(batch))
        return {"x": np.concatenate(drawn)}

    if rank.is_first:
        writer.begin(path, plan, {"seeds": [cell.seed for cell in cells]})
    writer.write_shards(path, plan, rank.mine(rank.agreed(missing)), draw_batch)
    rank.wait()
    if rank.is_first:
        writer.verify(path, plan)
