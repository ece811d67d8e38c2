"""How the presets were found: recipes, measured on training images.

    python -m benchmarks.preset_search digits --steps 10 --eta 0 0.5 --exponent 1 2 --first 10 50

measures every combination that is named (or a preset, or the solvers of diffusers: `--preset`,
`--baselines`) by the distance to half of the training images, which are drawn for this, from seeds
that no experiment has, and writes a line each to a file; what the file has is not measured again.
No test image is read. Needs the artifacts `heads`, `classifier` and `reference` of the experiment.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import torch

from ocm_core.cells import Cell
from ocm_core.features import extract
from ocm_core.metrics.frechet import Statistics, frechet_distance
from ocm_core.metrics.precision_recall import Manifold, precision_recall
from ocm_core.params.compose import validate
from ocm_core.pipeline.graph import graph_of
from ocm_core.pipeline.job import Inputs, open_inputs
from ocm_core.rng.streams import Stream, stream
from ocm_core.sampling.recipe import AnyRecipe, class_labels, draw_rows, of_cell
from ocm_core.schema.block import require
from ocm_core.stages.fetch_vae import image_reader
from ocm_core.stages.heads import load_denoiser
from ocm_core.stages.reference import Reference, load_space

FIRST_SEED = 1000  # those of experiments are smaller
LABEL = "candidate"
BASELINES: list[dict[str, Any]] = [
    {"scheduler": "UniPCMultistepScheduler", "options": {}},
    {"scheduler": "DPMSolverMultistepScheduler", "options": {}},
    {
        "scheduler": "DPMSolverMultistepScheduler",
        "options": {"algorithm_type": "sde-dpmsolver++"},
    },
]
Candidate = dict[str, Any]  # a sampler of an experiment, with one method and no grids


class Search:
    """The networks of an experiment, and half of its training images in its feature space."""

    def __init__(self, inputs: Inputs, methods: list[str], count: int, guidance: float) -> None:
        self.count, self.guidance = count, guidance
        self.experiment, self.device = inputs.experiment, inputs.device
        self.denoiser = load_denoiser(inputs, "trained", methods)
        space = require(self.experiment.features).space
        self.images_of, self.space = image_reader(inputs), load_space(inputs, space)
        _, whole = inputs.take(Reference, space).load()
        rows = stream(Stream.MANIFOLD, FIRST_SEED).permutation(len(whole.points))
        self.real = Manifold.of(whole.points[torch.from_numpy(rows[: len(rows) // 2])])
        self.statistics = Statistics.of(self.real.points)

    def measure(self, candidate: Candidate, steps: int, seed: int) -> dict[str, float]:
        recipe, rows = self._recipe(candidate, steps, seed), range(self.count)
        whole, device = self.experiment, self.device
        label = class_labels(self.denoiser, whole.data.classes, seed, rows, device)
        x = draw_rows(recipe, self.denoiser, whole.shape, rows, seed, label, device=device).x
        features = extract(self.space, self.images_of(x), self.count)
        shares = precision_recall(real=self.real, generated=Manifold.of(features))
        distance = frechet_distance(real=self.statistics, generated=features)
        return {"frechet": distance, "precision": shares.precision, "recall": shares.recall}

    def _recipe(self, candidate: Candidate, steps: int, seed: int) -> AnyRecipe:
        tree = self.experiment.model_dump()
        grid = {"nfe": [steps], "guidance": [self.guidance]}
        tree["methods"].setdefault("none", {"kind": "none", "needs": "nothing"})
        tree["sample"] |= {"samplers": {LABEL: candidate | {"grids": [grid]}}}
        tree["sample"] |= {"seeds": [seed], "split": []}
        one = validate(tree, "preset_search")
        cell = Cell("trained", LABEL, candidate["methods"][0], steps, self.guidance, seed)
        return of_cell(one, cell)


_STAGES = {"score", "moments", "heads", "classifier", "reference", "encode", "vae"}


def candidates(asked: argparse.Namespace) -> Iterator[Candidate]:
    if asked.baselines:
        yield from (
            {"kind": "diffusers", "methods": ["none"], **baseline} for baseline in BASELINES
        )
        return
    if asked.preset:
        yield {"kind": "preset", "name": asked.preset, "methods": asked.method}
        return
    axes = (
        asked.kernel,
        asked.method,
        asked.order,
        asked.eta,
        asked.factor,
        timesteps_rules(asked),
    )
    for kernel, method, order, eta, factor, rule in product(*axes):
        yield {
            "kind": kernel,
            **({"eta": eta} if kernel == "ddim" else {}),
            "clip_final_sigma": None,
            "order": order,
            "posterior_factor": factor,
            "timesteps": rule,
            "methods": [method],
        }


def timesteps_rules(asked: argparse.Namespace) -> list[dict[str, Any]]:
    if asked.timesteps:
        return [{"kind": kind} for kind in asked.timesteps]
    return [
        {"kind": "power", "exponent": exponent, "first": first or None}
        for exponent, first in product(asked.exponent, asked.first)
    ]


def main() -> int:
    asked = _arguments()
    graph = graph_of(asked.experiment)
    needed = [task for task in graph.tasks if task.stage in _STAGES]
    inputs = open_inputs(graph, needed, "cpu")
    _run(asked, Search(inputs, asked.method, asked.count, asked.guidance))
    return 0


def _run(asked: argparse.Namespace, search: Search) -> None:
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
    parser.add_argument("--baselines", action="store_true")
    parser.add_argument("--preset", help="as it is, with one method")
    parser.add_argument("--kernel", nargs="+", default=["ddim"])
    parser.add_argument("--method", nargs="+", default=["delta"])
    parser.add_argument("--order", type=int, nargs="+", default=[2])
    parser.add_argument("--eta", type=float, nargs="+", default=[0.0])
    parser.add_argument("--factor", type=float, nargs="+", default=[1.0])
    parser.add_argument("--exponent", type=float, nargs="+", default=[2.0])
    parser.add_argument("--first", type=int, nargs="+", default=[0])
    parser.add_argument(
        "--timesteps", nargs="+", help="kinds without parameters, instead of powers"
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
