"""Image experiments with made-up numbers, in the shape that the pipeline's have."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from ocm_core.artifacts.results import table
from ocm_core.cells import cells
from ocm_core.params.document import read_yaml, validate
from ocm_core.report.image_page import ImagePageInputs
from ocm_core.report.page.provenance import REMAKE, Provenance
from ocm_core.report.statistics.image_results import SAMPLE_MEASURES, ImageResults
from ocm_core.report.tables.cost import Cost
from ocm_core.report.tables.published_results import load, load_bounds
from ocm_core.schema.block import require
from ocm_core.schema.experiment import Experiment

ROOT = Path(__file__).resolve().parents[2]
PAPER = ROOT / "reports/paper/results.csv"
PLAIN, GUIDED = "cifar10_cs", "imagenet256"
BOTH, RELATIVE = "digits", "mnist_latent"  # families of heads: both, and the relative one only
SMALL = "cifar10_small"  # two spaces of features, and the paper's likelihoods of another network
RIVALS = "rivals"  # digits with a solver of diffusers and a preset
SEEDS = 3
STEPS = (5, 10, 25, 100)
LEVELS = {  # the lower the better, for distances and bounds alike
    "ocm": 1.0,
    "ocm_relative": 0.8,
    "sn_relative": 0.75,
    "npr_relative": 0.7,
    "ocm_tapered": 0.65,
    "ocm_3": 0.99,
    "ocm_5": 0.98,
    "ocm_10": 0.97,
    "rademacher_100": 1.04,
    "rademacher_1": 1.08,
    "sn": 1.1,
    "npr": 1.2,
    "analytic": 1.4,
    "iddpm": 1.3,
    "none": 0.9,
    "delta": 1.5,
    "beta_tilde": 2.0,
    "beta": 4.0,
}
BOUNDS = LEVELS | {"sn": 4.0, "beta_tilde": 8.0, "beta": 1.6}
JITTER = 1e-3
SOURCES = ("x_t", "npr", "sn", "ocm", "probes_1", "probes_1000")


@cache
def experiment(name: str = PLAIN, title: str = "Images") -> Experiment:
    """One of the paper's, with several seeds and fewer K."""
    path = ROOT / f"params/resolved/{BOTH if name == RIVALS else name}.yaml"
    tree = read_yaml(path)
    if name == RIVALS:
        grids = [{"steps": [*STEPS], "guidance": [1.0]}]
        unipc = {"kind": "diffusers", "scheduler": "UniPCMultistepScheduler", "grids": grids}
        quality = {"kind": "preset", "name": "quality", "methods": ["delta"], "grids": grids}
        tree["sample"]["samplers"] |= {"unipc": unipc, "quality": quality}
        tree["methods"]["none"] = {"kind": "none", "needs": "nothing"}
    tree["sample"]["seeds"] = list(range(SEEDS))
    tree["evaluate"]["jackknife"] = None
    for sampler in tree["sample"]["samplers"].values():
        for grid in sampler["grids"]:
            grid["steps"] = [k for k in grid["steps"] if k in STEPS]
    if tree["evaluate"]["likelihood"]:
        tree["evaluate"]["likelihood"] |= {"steps": list(STEPS), "fewer": {}}
    tree["report"] |= {"title": title, "summary": title}
    return validate(tree, path)


def results(name: str = PLAIN) -> xr.Dataset:
    return _results(name).copy(deep=True)


@cache
def _results(name: str) -> xr.Dataset:
    """Distances and bounds fall with K from their method's level; recall rises."""
    chosen = experiment(name)
    endings = ["", *(f"_{space}" for space in require(chosen.evaluate.features).beside)]
    measures = [key + ending for ending in endings for key in SAMPLE_MEASURES]
    found = table(cells(chosen), (*measures, "clamped"))
    wave = JITTER * np.array([1.0, -1.0, 0.5])
    for i, cell in enumerate(cells(chosen)):
        at = {key: getattr(cell, key) for key in found.sizes}
        level = LEVELS[cell.method]
        quality = level * (2.0 + 100.0 / cell.steps) / cell.guidance
        for j, ending in enumerate(endings, 1):  # other spaces differ in the distance alone
            noise = wave[(i + cell.seed) % SEEDS]
            found[f"fid{ending}"].loc[at] = quality / j * (1 + noise)
            found[f"kid{ending}"].loc[at] = quality / 1000
            found[f"precision{ending}"].loc[at] = 0.7
            found[f"recall{ending}"].loc[at] = 0.6 / (1 + 0.1 * level) + noise
        found["clamped"].loc[at] = 0.01 if cell.method == "sn" else 0.0
    if chosen.evaluate.likelihood:
        found = found.merge(_bounds(chosen), join="outer")
    present = [label for label in chosen.methods if label in found["method"]]
    return found.merge(_deviation(chosen), join="outer").sel({"method": present})


def _bounds(chosen: Experiment) -> xr.Dataset:
    assert chosen.evaluate.likelihood is not None
    steps = np.array(chosen.evaluate.likelihood.steps)
    methods = [label for label in chosen.methods if label not in ("delta", "none")]
    names = list(chosen.evaluate.likelihood.chains)
    decoder = 2.0 * np.ones((1, len(names), len(methods), len(steps)))
    even = np.array([BOUNDS[label] * (1 + 20 / steps) for label in methods])
    chain = np.array([[even / (1 + i) for i in range(len(names))]])  # the first is the worst
    dims = ("score", "chain", "method", "steps")
    variables: dict[str, Any] = {
        "nll": (dims, decoder + chain + 1e-5),
        "nll_se": (dims, 0.01 * np.ones_like(chain)),
        "nll_difference": (dims, chain - chain[:, :1]),
        "nll_difference_se": (dims, 0.001 * np.ones_like(chain)),
        "nll_terms": (
            (*dims, "term"),
            np.stack([decoder, chain, np.full_like(chain, 1e-5)], axis=-1),
        ),
    }
    terms = ["decoder", "steps", "prior"]
    coords = {
        "score": chosen.network.scores,
        "chain": names,
        "method": methods,
        "steps": steps,
        "term": terms,
    }
    return xr.Dataset(variables, coords)


def _deviation(chosen: Experiment) -> xr.Dataset:
    source = np.random.Generator(np.random.Philox(1))
    channels, side = (3, 8) if chosen.encode.latent is None else (4, 8)
    x = source.random((1, 3, len(SOURCES), 2, channels, side, side)).astype(np.float32)
    dims = ("score", "t", "source", "image", "axis0", "axis1", "axis2")
    coords = {"score": chosen.network.scores, "t": [1, 100, 800], "source": list(SOURCES)}
    return xr.Dataset({"deviation": (dims, x, {"split": "test"})}, coords)


def _chains(chosen: Experiment) -> dict[str, dict[int, tuple[int, ...]]]:
    costs = chosen.evaluate.chains
    return {label: {1: (900,), 2: (20, 1000)} for label in (costs.methods if costs else ())}


def images(name: str = PLAIN, title: str = "Images", side: int = 8) -> ImagePageInputs:
    source = np.random.Generator(np.random.Philox(2))
    chosen = experiment(name, title)
    paper = chosen.report.paper
    shown = {(c.sampler, c.method, c.steps): None for c in cells(chosen)}
    drawn = {key: source.integers(0, 256, (9, side, side, 3), np.uint8) for key in shown}
    return ImagePageInputs(
        experiment=chosen,
        dataset=results(name),
        space="inception",
        count=50000,
        test_count=10000,
        head_parameters=dict.fromkeys(("npr", "sn", "ocm", "ocm_relative"), 4099),
        provenance=Provenance({REMAKE: f"snakemake --cores 2 reports/{name}.html"}),
        curves={
            "on the published score": [
                {"iteration": i, "ocm": 1 / i, "sn": 2 / i, "npr": 3 / i} for i in range(1, 30)
            ]
        },
        chains=_chains(chosen),
        samples=drawn,
        sample_guidance=min(cell.guidance for cell in cells(chosen)),
        test=source.integers(0, 256, (9, side, side, 3), np.uint8),
        cost=Cost(
            "batches of 64",
            52_540_000,
            {"score": 45.0, "sn": 45.3, "ocm": 45.2},
            {"sn": (1.007, 0.002), "ocm": (1.004, 0.001)},
        ),
        published=load_bounds(PAPER, paper) if paper else load(PAPER, name),
    )


def image_results(
    name: str = PLAIN, found: xr.Dataset | None = None, **changes: Any
) -> ImageResults:
    given = replace(images(name), dataset=results(name) if found is None else found, **changes)
    return given.results
