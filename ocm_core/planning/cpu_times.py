"""How long the tasks of an experiment will take on a CPU, from times per image measured once.

By `python -m benchmarks.image_times NAME`, in process time of one thread: `cifar10_small` on an AMD
EPYC with AVX-512 and its instructions for bfloat16, `digits` on an Intel Xeon that was busy with
other work, too. Stages that take but a few minutes are left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from ocm_core.cells import cells_of
from ocm_core.pipeline.table import Task
from ocm_core.planning.disk_space import splits
from ocm_core.planning.workload import built, chain_grid, likelihood_timesteps
from ocm_core.schema.block import require
from ocm_core.schema.experiment import Experiment


@dataclass(frozen=True)
class ImageTimes:
    """Milliseconds of one thread for one image."""

    score_step: float  # a step of training the score network
    heads_step: float  # a step of training all heads together
    evaluation: float  # of the frozen network
    sampling: float  # the same as `sample.execution` says
    product: float  # of a probe with the Jacobian, where an evaluation has left its graph
    features: float


MEASURED = {
    "cifar10_small": ImageTimes(
        score_step=12.2, heads_step=90.0, evaluation=5.8, sampling=3.7, product=6.4, features=19.9
    ),
    "digits": ImageTimes(
        score_step=0.9, heads_step=1.9, evaluation=0.3, sampling=0.28, product=0.27, features=0.04
    ),
}


def expected_seconds(
    experiment: Experiment, task: Task, times: ImageTimes | None = None
) -> float | None:
    """Of a task that computes for long; None where nothing was measured, here or elsewhere."""
    times = times or MEASURED.get(experiment.name)
    if times is None:
        return None
    train, sample = experiment.train, experiment.sample
    match task.stage:
        case "score":
            score = require(train.score)
            spent = times.score_step * score.iterations * score.batch_size
        case "moments":
            spent = times.evaluation * train.moments.draws * experiment.schedule.steps
        case "heads":
            spent = times.heads_step * train.heads.iterations * train.heads.batch_size
        case "chains":
            images = require(experiment.evaluate.chains).images
            spent = times.evaluation * images * len(chain_grid(experiment))
        case "sample":
            steps = sum(cell.steps for cell in cells_of(experiment, task.part))
            spent = times.sampling * steps * sample.count
        case "reference" if task.part == require(experiment.evaluate.features).space:
            images = splits(experiment)["train"].items
            chosen = require(experiment.evaluate.features).reference_images
            spent = times.features * min(images, chosen or images)
        case "evaluate_images" | "evaluate_jackknife":
            spent = times.features * len(cells_of(experiment, task.part)) * sample.count
        case "evaluate_likelihood":
            spent = _likelihood(experiment, times)
        case "evaluate_loss":
            held_out = require(experiment.evaluate.loss).images
            spent = times.evaluation * (held_out or splits(experiment)["test"].items)
        case "evaluate_deviation":
            deviation = require(experiment.evaluate.deviation)
            points = len(deviation.times) * deviation.images
            spent = times.product * points * sum(deviation.probes)
        case _:
            return None
    return spent / 1e3


def _likelihood(experiment: Experiment, times: ImageTimes) -> float:
    """One evaluation per timestep of any chain; probes need another one, and their products."""
    settings = require(experiment.evaluate.likelihood)
    images = settings.images or splits(experiment)["test"].items
    spent = 0.0
    for lengths, labels in settings.groups().items():
        visited = likelihood_timesteps(experiment, lengths)
        values, methods = prod(experiment.shape), [built(experiment.methods[k]) for k in labels]
        products = [method.jacobian_products(values) for method in methods]
        evaluations = 1 + any(products)
        spent += len(visited) * (evaluations * times.evaluation + sum(products) * times.product)
    return images * spent
