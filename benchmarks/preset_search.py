"""How the presets were found: ways to walk a chain, measured on training images.

    python -m benchmarks.preset_search digits --steps 10 --eta 0 0.5 --exponent 1 2 --first 10 50

measures every combination that is named (or a preset, or the solvers of diffusers: `--preset`,
`--rivals`) by the distance to half of the training images, which are drawn for this, from seeds
that no experiment has, and writes a line each to a file; what the file has is not measured again.
No test image is read. Needs the artifacts `heads`, `classifier` and `reference` of the experiment.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ocm_core.artifacts.feature_space import load_space
from ocm_core.artifacts.heads import load_denoiser
from ocm_core.artifacts.images import image_reader
from ocm_core.artifacts.reference import load_reference
from ocm_core.cells import Cell
from ocm_core.features.interface import extract
from ocm_core.metrics.frechet import Statistics, frechet_distance
from ocm_core.metrics.precision_recall import Manifold, precision_recall
from ocm_core.params.document import validate
from ocm_core.params.resolved import load
from ocm_core.pipeline import table
from ocm_core.pipeline.job import Job
from ocm_core.pipeline.manifests import checked_folder
from ocm_core.rng.streams import Purpose, stream
from ocm_core.samplers.cell_sampler import CellSampler
from ocm_core.schema.block import require

FIRST_SEED = 1000  # those of experiments are smaller
LABEL = "candidate"
RIVALS: list[dict[str, Any]] = [
    {"scheduler": "UniPCMultistepScheduler", "options": {}},
    {"scheduler": "DPMSolverMultistepScheduler", "options": {}},
    {
        "scheduler": "DPMSolverMultistepScheduler",
        "options": {"algorithm_type": "sde-dpmsolver++"},
    },
]
Candidate = dict[str, Any]  # a sampler of an experiment, with one method and no grids


@dataclass(frozen=True)
class Drawn:
    x: Tensor

    @property
    def count(self) -> int:
        return len(self.x)

    def read(self, rows: range) -> Tensor:
        return self.x[rows.start : rows.stop]


class Search:
    """The networks of an experiment, and half of its training images in its feature space."""

    def __init__(self, name: str, methods: list[str], count: int, guidance: float) -> None:
        self.count, self.guidance = count, guidance
        self.experiment = load(name)
        heads = any(self.experiment.methods[label].needs == "head" for label in methods)
        stages = {*_STAGES, "heads"} if heads else _STAGES
        needed = [task for task in table.tasks(self.experiment) if task.stage in stages]
        self.job = Job(
            experiment=self.experiment,
            stage="sample",
            part="all",
            inputs={str(task): checked_folder(name, task) for task in needed},
            folder=Path(),
            state=Path(),
            requested_device="cpu",
        )
        self.denoiser = load_denoiser(self.job, "learned", methods)
        space = require(self.experiment.evaluate.features).space
        self.images_of, self.space = image_reader(self.job), load_space(self.job, space)
        _, whole = load_reference(self.job.inputs[f"reference/{space}"])
        rows = stream(Purpose.MANIFOLD, FIRST_SEED).permutation(len(whole.points))
        self.real = Manifold.of(whole.points[torch.from_numpy(rows[: len(rows) // 2])])
        self.statistics = Statistics.of(self.real.points)

    def measure(self, candidate: Candidate, steps: int, seed: int) -> dict[str, float]:
        sampler = self._sampler(candidate, steps, seed)
        rows = range(self.count)
        x = sampler.draw(rows, sampler.labels(rows)).x
        features = extract(self.space, self.images_of(Drawn(x)), self.count)
        found = precision_recall(real=self.real, generated=Manifold.of(features))
        fid = frechet_distance(real=self.statistics, generated=features)
        return {"fid": fid, "precision": found.precision, "recall": found.recall}

    def _sampler(self, candidate: Candidate, steps: int, seed: int) -> CellSampler:
        tree = self.experiment.model_dump()
        grid = {"steps": [steps], "guidance": [self.guidance]}
        tree["methods"].setdefault("none", {"kind": "none", "needs": "nothing"})
        tree["sample"] |= {"samplers": {LABEL: candidate | {"grids": [grid]}}}
        tree["sample"] |= {"seeds": [seed], "split": []}
        one = validate(tree, Path("preset_search"))
        cell = Cell("learned", LABEL, candidate["methods"][0], steps, self.guidance, seed)
        return CellSampler(one, self.denoiser, cell, self.job.device)


_STAGES = {"score", "moments", "classifier", "reference", "encode", "vae"}


def candidates(asked: argparse.Namespace) -> Iterator[Candidate]:
    if asked.rivals:
        yield from ({"kind": "diffusers", "methods": ["none"], **rival} for rival in RIVALS)
        return
    if asked.preset:
        yield {"kind": "preset", "name": asked.preset, "methods": asked.method}
        return
    axes = (asked.kernel, asked.method, asked.order, asked.eta, asked.scale, chains(asked))
    for kernel, method, order, eta, scale, chain in product(*axes):
        yield {
            "kind": kernel,
            "eta": 1.0 if kernel == "ddpm" else eta,
            "rederive_eps": False,
            "last_sigma": None,
            "order": order,
            "covariance_scale": scale,
            "chain": chain,
            "methods": [method],
        }


def chains(asked: argparse.Namespace) -> list[dict[str, Any]]:
    if asked.chain:
        return [{"kind": kind} for kind in asked.chain]
    return [
        {"kind": "power", "exponent": exponent, "first": first or None}
        for exponent, first in product(asked.exponent, asked.first)
    ]


def main() -> int:
    asked = _arguments()
    search = Search(asked.experiment, asked.method, asked.count, asked.guidance)
    known = asked.out.read_text().splitlines() if asked.out.exists() else []
    done = {json.dumps(json.loads(line)["what"]) for line in known}
    seeds = range(asked.seed, asked.seed + asked.seeds)
    for steps, candidate, seed in product(asked.steps, candidates(asked), seeds):
        what = {"steps": steps, "seed": seed, "count": asked.count, **candidate}
        if json.dumps(what) in done:
            continue
        found = search.measure(candidate, steps, seed)
        with asked.out.open("a") as file:
            print(json.dumps({"what": what, **found}), file=file)
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("experiment")
    parser.add_argument("--out", type=Path, default=Path("preset_search.jsonl"))
    parser.add_argument("--steps", type=int, nargs="+", default=[5, 7, 10, 15, 20, 25])
    parser.add_argument("--count", type=int, default=600, help="samples a seed")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--seed", type=int, default=FIRST_SEED, help="the first of them")
    parser.add_argument("--guidance", type=float, default=1.0)
    parser.add_argument("--rivals", action="store_true")
    parser.add_argument("--preset", help="as it is, with one method")
    parser.add_argument("--kernel", nargs="+", default=["ddim"])
    parser.add_argument("--method", nargs="+", default=["delta"])
    parser.add_argument("--order", type=int, nargs="+", default=[2])
    parser.add_argument("--eta", type=float, nargs="+", default=[0.0])
    parser.add_argument("--scale", type=float, nargs="+", default=[1.0])
    parser.add_argument("--exponent", type=float, nargs="+", default=[2.0])
    parser.add_argument("--first", type=int, nargs="+", default=[0])
    parser.add_argument("--chain", nargs="+", help="kinds without parameters, instead of powers")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
