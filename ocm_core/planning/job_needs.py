"""What a job asks of a cluster: minutes and memory, by the cost model where it knows the network.

The hours are those of `ocm cost` in TF32, divided among the GPUs of the job. Twice as many are
asked for, because how much of its peak a GPU reaches is an assumption; a job that needs longer
resumes in its next try. Memory is the host's, on each node: every process holds its own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from math import ceil, prod

from ocm_core.artifacts.training_set import held_bytes
from ocm_core.params.resolved import load
from ocm_core.pipeline.table import BY_NAME, Resources, Task, tasks
from ocm_core.planning.cost_report import is_counted
from ocm_core.planning.disk_space import FLOAT32, splits, stored_items
from ocm_core.planning.network_counts import autoencoder_parameters
from ocm_core.planning.roofline import Gpu, GpuPrecision, Utilisation, gpu_named, roofline_time
from ocm_core.planning.workload import Workload
from ocm_core.schema.experiment import Experiment

PRECISION: GpuPrecision = "tf32"
MARGIN = 2.0
START = 30  # minutes to start and to load
PROCESS = 4e9  # bytes of Python, torch and CUDA's context
LOADING = 2  # weights are in memory twice while they are loaded
ON_TRAINING_SET = ("score", "heads", "moments")
WITH_FEATURES = ("reference", "selection", "evaluate_images")


@dataclass(frozen=True)
class JobNeeds:
    """Of one job; `hours` are by the cost model, 0 where it does not know: the table says all."""

    task: Task
    gpus: int
    hours: float
    resources: Resources


def jobs_of(
    experiment: Experiment, model: str, per_job: int = 1, longest: int = 0
) -> list[JobNeeds]:
    """Every job of an experiment, as the profile of a cluster asks for it."""
    return [
        needs_of(experiment, task, BY_NAME[task.stage].gpus(experiment, per_job), 1, model, longest)
        for task in tasks(experiment)
    ]


def needs_of(
    experiment: Experiment, task: Task, gpus: int, nodes: int, model: str, longest: int = 0
) -> JobNeeds:
    """With so many GPUs in all; `longest` is the limit of minutes, 0: none."""
    table, gpu = BY_NAME[task.stage].resources, gpu_named(model)
    workload = _workload(experiment.name) if gpus and is_counted(experiment) else None
    if workload is None or not workload.task(task).gpu.operations:
        return JobNeeds(task, gpus, 0.0, table)
    hours = gpu_hours(workload, task, gpu) / gpus
    minutes = START + ceil(60 * MARGIN * hours)
    memory = ceil(gpus / nodes) * (PROCESS + host_bytes(workload, task)) / 1e6
    asked = replace(table, memory=ceil(memory), minutes=min(minutes, longest or minutes))
    return JobNeeds(task, gpus, hours, asked)


def gpu_hours(workload: Workload, task: Task, gpu: Gpu) -> float:
    """Of a task on one GPU."""
    work, use = workload.task(task), Utilisation()
    distances = work.float64 / (gpu.float64 * use.peak)
    return (roofline_time(work.gpu, gpu, PRECISION, use).seconds + distances) / 3600


def host_bytes(workload: Workload, task: Task) -> float:
    """What a process of the task holds at its peak, beside itself."""
    experiment, stage = workload.experiment, BY_NAME[task.stage]
    found, item = 0.0, workload.item_bytes
    if "network" in stage.reads:
        methods = len(stage.methods(experiment, task.part))
        weights = workload.counts.parameters + methods * workload.counts.head_parameters
        found += LOADING * weights * FLOAT32
    if "encode.latent" in stage.reads or task.stage == "encode":
        found += LOADING * autoencoder_parameters(experiment.name) * FLOAT32
    if task.stage == "encode":
        found += experiment.encode.shard * (item + prod(experiment.data.shape) * FLOAT32)
    if task.stage in ON_TRAINING_SET:
        items = stored_items(experiment)["train"]
        found += held_bytes(items * item, item, experiment.encode.chunk)
    if task.stage in WITH_FEATURES:
        width = workload.dimensions
        found += 2 * (_most_features(experiment) + width) * width * FLOAT32
    return found


def _most_features(experiment: Experiment) -> int:
    """Vectors at a time: a cell's samples, and the reference's manifold."""
    settings = experiment.evaluate.features
    manifold = settings.manifold_images if settings else 0
    return experiment.sample.count + (manifold or splits(experiment)["train"].items)


@cache
def _workload(name: str) -> Workload:
    return Workload.of(load(name))
