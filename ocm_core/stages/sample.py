"""Draw the samples of one part's cells."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ocm_core.cells import Cell, cells_of, parts
from ocm_core.diffusion.denoiser import executed
from ocm_core.diffusion.timesteps import TimestepsByMethod
from ocm_core.distributed import current_rank
from ocm_core.io.atomic import write_text
from ocm_core.io.checksums import is_intact, record_checksum
from ocm_core.sampling import modules_of, recipes_of
from ocm_core.sampling.recipe import Recipe, class_labels, draw_rows, of_cell
from ocm_core.schema.experiment import Sampler
from ocm_core.stages import Artifact, Experiment, Inputs, Job, MadeOf, Params, Stage, Task, Work
from ocm_core.stages._networks import MODEL_KEYS, denoiser_tasks, made_with, score_modules
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
    return any(recipe.timesteps.kind == "optimal" for recipe in recipes_of(sampler).values())


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


def _plugins(experiment: Experiment, part: str) -> list[str]:
    samplers = (experiment.sample.samplers[name] for name in _along(experiment, part, "sampler"))
    kernels = {module for sampler in samplers for module in modules_of(sampler)}
    return [*score_modules(experiment, _along(experiment, part, "score")), *sorted(kernels)]


def _work(experiment: Experiment, part: str) -> Work:
    """Passes of all samples; guidance evaluates the network twice, probes cost two passes each."""
    passes = [
        cell.nfe * (1 + (cell.guidance != 1.0)) * (1 + 2 * experiment.methods[cell.method].products)
        for cell in cells_of(experiment, part)
    ]
    precision = experiment.sample.execution.precision
    return Work(sum(passes) * experiment.sample.count, precision=precision)


STAGE: Stage[Params] = Stage(
    __name__,
    "sample",
    parts=lambda experiment: list(parts(experiment)),
    takes=lambda experiment, part: _taken(experiment, cells_of(experiment, part)),
    reads=_reads,
    methods=lambda experiment, part: sorted(_along(experiment, part, "method")),
    plugins=_plugins,
    after=("fetch_data",),  # so that damaged images are named first
    shared=True,
    gpu=True,
    work=_work,
)


def sample_tasks(experiment: Experiment) -> list[Task]:
    """Return the tasks whose artifacts are all samples of the experiment."""
    return [Samples.task(part) for part in parts(experiment)]


def store_name(cell: Cell) -> str:
    """Name the samples of all cells that differ in their seed alone."""
    guidance = "" if cell.guidance == 1.0 else f"-cfg{cell.guidance}"
    return f"{cell.score}-{cell.sampler}-{cell.method}-nfe{cell.nfe}{guidance}"


def folder_name(cell: Cell) -> str:
    """Name the folder of a cell's samples."""
    return f"{store_name(cell)}-seed{cell.seed}"


@dataclass(frozen=True)
class CellSamples:
    """The samples of one cell, and the share of covariance entries that were clamped."""

    stored: StoredSplit
    clamped: float = 0.0

    def __len__(self) -> int:
        return len(self.stored)

    def __getitem__(self, rows: slice) -> torch.Tensor:
        start, stop, _ = rows.indices(len(self))
        return torch.from_numpy(self.stored.read(range(start, stop)))


class Samples(Artifact):
    """A Zarr store for every cell, and counts of clamped entries."""

    def read(self, cell: Cell) -> CellSamples:
        folder = self.folder / folder_name(cell)
        counts = Counter[str]()
        for file in (folder / "clamped").glob("*.json"):
            counts.update(json.loads(file.read_text()))
        clamped = (counts["below"] + counts["above"]) / max(1, counts["entries"])
        return CellSamples(open_split([folder], "samples"), clamped)


def run(job: Job) -> None:
    """Draw what is missing, and take over the batches that depend on nothing new."""
    experiment, rank, cells = job.experiment, current_rank(), cells_of(job.experiment, job.part)
    optimal = {score: optimal_timesteps(job, score) for score in {cell.score for cell in cells}}

    def begin(cell: Cell) -> list[range]:
        return begin_store(job, cell, made_of(job, cell, optimal[cell.score]))

    missing = [(cell, batch) for cell in cells for batch in rank.agreed(partial(begin, cell))]
    wanted: dict[Cell, list[range]] = {}
    for cell, batch in rank.mine(missing):
        wanted.setdefault(cell, []).append(batch)
    models = {
        score: executed(
            load_denoiser(job, score, sorted({c.method for c in wanted if c.score == score})),
            **experiment.sample.execution.model_dump(),
        )
        for score in dict.fromkeys(cell.score for cell in wanted)
    }
    passes = sum(cell.nfe * len(batches) for cell, batches in wanted.items())
    with job.meter(passes, "sampling, network passes") as advance:

        def draw(cell: Cell, rows: range) -> tuple[np.ndarray, Mapping[str, int]]:
            model, device = models[cell.score], job.device
            recipe = of_cell(experiment, cell, optimal[cell.score])
            label = class_labels(model, experiment.data.classes, cell.seed, rows, device)
            given: Any = {"device": device, "watch": lambda *_: advance()}
            drawn = draw_rows(recipe, model, experiment.shape, rows, cell.seed, label, **given)
            return drawn.x.cpu().numpy(), drawn.clipped

        for cell, batches in wanted.items():
            write_batches(job, cell, batches, draw)
    rank.wait()
    for cell in cells if rank.is_first else []:
        writer.verify(_store(job, cell), _layout(experiment))
    job.note(cells=len(cells), samples_per_cell=experiment.sample.count)


def made_of(job: Inputs, cell: Cell, optimal: TimestepsByMethod) -> MadeOf:
    """Return all that the samples of a cell depend on, and nothing of other cells."""
    experiment, sample = job.experiment, job.experiment.sample
    sampler = sample.samplers[cell.sampler]
    visited = _is_optimal(sampler) and of_cell(experiment, cell, optimal)
    facts = {
        "cell": vars(cell),
        "recipe": sampler.model_dump(mode="json", exclude={"grids", "methods"}),
        "timesteps": visited.timesteps if isinstance(visited, Recipe) else None,
        "sample": sample.model_dump(mode="json", include={"clip", "guidance", "execution"}),
    }
    given = job, __name__, cell.score, cell.method, facts
    return made_with(*given, modules=modules_of(sampler))


def _layout(experiment: Experiment) -> writer.StoreLayout:
    """Return the layout of a cell's store: a batch is a shard, which has one writer."""
    count = experiment.sample.count
    size = min(experiment.sample.batch_size, count)
    shape, items = experiment.shape, range(count)
    return writer.StoreLayout(items=items, shape=shape, dtype="float32", chunk=size, shard=size)


def _store(job: Job, cell: Cell) -> Path:
    return store_path(job.folder / folder_name(cell), "samples")


def _clamped_file(job: Job, cell: Cell, batch: range) -> Path:
    return job.folder / folder_name(cell) / "clamped" / f"{batch.start}.json"


def begin_store(job: Job, cell: Cell, made_of: MadeOf) -> list[range]:
    """Make the store of a cell, take over batches, and return those that are still to be drawn."""
    path, plan, (modules, facts) = _store(job, cell), _layout(job.experiment), made_of
    writer.begin(path, plan, {"seed": cell.seed})
    lacking = writer.missing(path, plan)

    def is_there(batch: range) -> bool:
        clamped = _clamped_file(job, cell, batch)
        files = [clamped, *(writer.shard_file(path, plan, name, batch) for name in plan.variables)]
        names = [file.relative_to(job.folder).as_posix() for file in files]
        rows = {"rows": [batch.start, batch.stop], "shard": plan.shard}
        reused = job.reuse(names[1], names, MadeOf(modules, {**facts, **rows}))
        return reused or (batch not in lacking and is_intact(clamped))

    return [batch for batch in plan.shards if not is_there(batch)]


def write_batches(job: Job, cell: Cell, batches: Sequence[range], draw: Draw) -> None:
    """Draw batches into the store of a cell."""

    def draw_batch(batch: range) -> dict[str, np.ndarray]:
        samples, counts = draw(cell, batch)
        file = _clamped_file(job, cell, batch)
        write_text(file, json.dumps(dict(sorted(counts.items()))) + "\n")
        record_checksum(file)
        return {"x": samples}

    writer.write_shards(_store(job, cell), _layout(job.experiment), batches, draw_batch)
