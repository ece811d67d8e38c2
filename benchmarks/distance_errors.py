"""How far distances between samples and data are from noise, where an experiment has one seed.

    python -m benchmarks.distance_errors cifar10_small --steps 10 --against ddpm-ocm

prints the Fréchet distance of every route with so many steps, and what it has above that of one
of them, with a standard error by the delete-a-block jackknife: the distances are computed again
without the first twentieth of the samples, without the second, and so on. All routes leave out the
same rows, which start from the same noise, so that what they share cancels. Needs the artifacts
`sample` and `reference` of the experiment, and `classifier` for that space.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray

from ocm_core.artifacts.feature_space import load_space
from ocm_core.artifacts.images import image_reader
from ocm_core.artifacts.reference import load_reference
from ocm_core.artifacts.samples import read_samples
from ocm_core.cells import Cell, parts
from ocm_core.errors import OcmError
from ocm_core.features.interface import extract
from ocm_core.metrics.frechet import Statistics, frechet_distance
from ocm_core.params.resolved import load
from ocm_core.pipeline import table
from ocm_core.pipeline.job import Job
from ocm_core.pipeline.manifests import checked_folder
from ocm_core.schema.block import require
from ocm_core.schema.experiment import Experiment
from ocm_core.shapes import Points

BLOCKS = 20


def leaving_out(real: Statistics, features: Points) -> Float[ndarray, " block"]:
    """The distance without each block of samples in turn."""
    blocks = torch.tensor_split(torch.arange(len(features)), BLOCKS)
    kept = [torch.cat([b for b in blocks if b is not left_out]) for left_out in blocks]
    return np.array([frechet_distance(real=real, generated=features[rows]) for rows in kept])


def jackknife_error(left_out: Float[ndarray, " block"]) -> float:
    """Of a statistic of all samples, from its values without each block in turn."""
    count = len(left_out)
    return float(np.sqrt((count - 1) / count * np.square(left_out - left_out.mean()).sum()))


def job_of(experiment: Experiment, space: str) -> Job:
    stages = {"sample", "reference", "classifier", "encode", "vae", "fetch_vae"}
    if space != "classifier":
        stages.remove("classifier")
    needed = [task for task in table.tasks(experiment) if task.stage in stages]
    return Job(
        experiment=experiment,
        stage="evaluate_images",
        part="all",
        inputs={str(task): checked_folder(experiment.name, task) for task in needed},
        folder=Path(),
        state=Path(),
        requested_device="cpu",
    )


def routes(experiment: Experiment, steps: int) -> dict[str, tuple[str, Cell]]:
    """By sampler and method: the part and the cell, of the first seed without guidance."""
    return {
        f"{cell.sampler}-{cell.method}": (part, cell)
        for part, group in parts(experiment).items()
        for cell in group
        if (cell.steps, cell.seed) == (steps, experiment.sample.seeds[0]) and cell.guidance == 1.0
    }


def main() -> int:
    asked = _arguments()
    experiment = load(asked.experiment)
    settings = require(experiment.evaluate.features)
    space = asked.space or settings.space
    job = job_of(experiment, space)
    real, _ = load_reference(job.inputs[f"reference/{space}"])
    extractor, images_of = load_space(job, space), image_reader(job)
    found = routes(experiment, asked.steps)
    chosen = dict.fromkeys([asked.against, *(asked.routes or found)])
    if unknown := [name for name in chosen if name not in found]:
        raise OcmError(f"{', '.join(unknown)}: expected some of {', '.join(found)}")
    whole, without = {}, {}
    for name, (part, cell) in ((name, found[name]) for name in chosen):
        images = images_of(read_samples(job.inputs[f"sample/{part}"], cell))
        features = extract(extractor, images, settings.batch_size)
        whole[name] = frechet_distance(real=real, generated=features)
        without[name] = leaving_out(real, features)
    print(
        f"| K = {asked.steps}, {space} | distance | above `{asked.against}` |\n| --- | --- | --- |"
    )
    for name, distance in whole.items():
        gap = distance - whole[asked.against]
        error = jackknife_error(without[name] - without[asked.against])
        print(f"| `{name}` | {distance:.2f} | {gap:+.2f} ± {error:.2f} |")
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("experiment")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--against", default="ddpm-ocm", help="sampler and method")
    parser.add_argument("--routes", nargs="+", help="sampler and method of each; default: all")
    parser.add_argument("--space", help="of features; that of the page if none is given")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
