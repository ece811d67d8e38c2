"""A page of the size of `digits`: the committed numbers, with pictures made up around them."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import numpy as np
import xarray as xr
from sklearn.datasets import load_digits

from ocm_core.artifacts.results import table
from ocm_core.cells import cells
from ocm_core.params.document import read_yaml, validate
from ocm_core.report.image_page import ImagePageInputs, page
from ocm_core.report.page.document import Page
from ocm_core.report.page.pictures import Pixels
from ocm_core.report.page.provenance import Provenance, provenance
from ocm_core.report.tables.cost import SCORE, Cost
from ocm_core.schema.experiment import Experiment
from tests.report.synthetic_images import ROOT

NAME = "digits"
MEASURES = ("fid", "kid", "precision", "recall")
WAVES = np.array([[1.0, 0.0, -1.0], [0.0, -1.0, 1.0], [-1.0, 1.0, 0.0]])  # of deviation one


@cache
def _experiment() -> Experiment:
    path = ROOT / f"params/resolved/{NAME}.yaml"
    return validate(read_yaml(path), path)


@cache
def _metrics() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((ROOT / f"reports/{NAME}.metrics.json").read_text())
    return found


def digits() -> ImagePageInputs:
    chosen = _experiment()
    heads = [label for label, method in chosen.methods.items() if method.needs == "head"]
    times = {label: 3.0 + 0.02 * i for i, label in enumerate(chosen.methods)}
    return ImagePageInputs(
        experiment=chosen,
        dataset=_results(chosen),
        space="classifier",
        count=chosen.sample.count,
        test_count=359,
        head_parameters=dict.fromkeys(heads, 4099),
        provenance=_provenance(),
        curves={"on the learned score": _curve(heads), "by denoising": _curve(["score"])},
        chains=_chains(chosen),
        samples=_samples(chosen),
        test=_images(36, 0.0),
        cost=Cost("batches of 64 on 2 CPU cores", 90_000, {SCORE: 2.9} | times, _ratios(times)),
    )


@cache
def digits_page() -> Page:
    return page(digits())


def _results(chosen: Experiment) -> xr.Dataset:
    found = table(cells(chosen), (*MEASURES, "clamped"))
    for i, cell in enumerate(cells(chosen)):
        at = {key: getattr(cell, key) for key in found.sizes}
        wave = WAVES[hash_of(cell.method) % 3][chosen.sample.seeds.index(cell.seed) % 3]
        for name in MEASURES:
            mean, spread = (_number(n, cell) for n in (name, f"{name}_std"))
            found[name].loc[at] = mean + spread * (0.7 * WAVES[0][i % 3] + 0.3 * wave)
        found["clamped"].loc[at] = _number("clamped", cell)
    merged = found.merge(_bounds(chosen), join="outer").merge(_deviation(chosen), join="outer")
    return merged.sel({"method": [m for m in chosen.methods if m in merged["method"]]})


def hash_of(label: str) -> int:
    return sum(map(ord, label))


def _number(name: str, cell: Any) -> float:
    """NaN for what was not committed."""
    tree = _metrics()[name].get(cell.sampler, {}).get(cell.method, {})
    return float(tree.get(f"K{cell.steps}", np.nan))


def _bounds(chosen: Experiment) -> xr.Dataset:
    assert chosen.evaluate.likelihood is not None
    steps, chains = chosen.evaluate.likelihood.steps, [*chosen.evaluate.likelihood.chains]
    methods = [m for m in chosen.methods if m in _metrics()["nll_bpd"][chains[0]]]
    numbers = [
        [
            [
                [_metrics()[name].get(c, {}).get(m, {}).get(f"K{k}", np.nan) for k in steps]
                for m in methods
            ]
            for c in chains
        ]
        for name in ("nll_bpd", "nll_bpd_se")
    ]
    means, errors = np.array(numbers)[:, None]
    prior, decoder = np.full_like(means, 4e-5), np.full_like(means, 1.9)
    dims = ("score", "chain", "method", "steps")
    terms = np.stack([prior, means - prior - decoder, decoder], -1)
    coords = {"score": chosen.network.scores, "chain": chains, "method": methods, "steps": steps}
    return xr.Dataset(
        {
            "nll": (dims, means),
            "nll_se": (dims, errors),
            "nll_difference": (dims, means - means[:, :1]),
            "nll_difference_se": (dims, 0.1 * errors),
            "nll_terms": ((*dims, "term"), terms),
        },
        coords | {"term": ["prior", "steps", "decoder"]},
    )


def _deviation(chosen: Experiment) -> xr.Dataset:
    assert chosen.evaluate.deviation is not None
    settings = chosen.evaluate.deviation
    sources = ["x_t", "npr", "sn", "ocm", *(f"probes_{m}" for m in settings.probes)]
    shape = (1, len(settings.times), len(sources), settings.images, 1, 8, 8)
    x = np.random.Generator(np.random.Philox(1)).random(shape).astype(np.float32)
    dims = ("score", "t", "source", "image", "axis0", "axis1", "axis2")
    coords = {"score": chosen.network.scores, "t": settings.times, "source": sources}
    return xr.Dataset({"deviation": (dims, x, {"split": "test"})}, coords)


def _samples(chosen: Experiment) -> dict[tuple[str, str, int], Pixels]:
    """Digits, the noisier the larger the distance."""
    found: dict[tuple[str, str, int], Pixels] = {}
    for cell in cells(chosen):
        noise = np.nan_to_num(_number("fid", cell), nan=10.0) / 50
        found.setdefault((cell.sampler, cell.method, cell.steps), _images(36, noise))
    return found


@cache
def _images(count: int, noise: float) -> Pixels:
    source = np.random.Generator(np.random.Philox(2))
    clean = load_digits().images[:count] * 255 / 16
    return np.clip(clean + 255 * noise * source.normal(size=clean.shape), 0, 255).astype(np.uint8)


def _curve(names: list[str]) -> list[dict[str, float]]:
    source = np.random.Generator(np.random.Philox(4))
    return [
        {"iteration": 20 * i}
        | {name: 0.2 + 0.8 / i + 0.002 * float(source.normal()) for name in names}
        for i in range(1, 80)
    ]


def _chains(chosen: Experiment) -> dict[str, dict[int, tuple[int, ...]]]:
    assert chosen.evaluate.chains is not None
    lengths = range(1, 31)
    return {
        label: {k: tuple(sorted({*np.geomspace(1, 900, k).astype(int).tolist()})) for k in lengths}
        for label in chosen.evaluate.chains.methods
    }


def _ratios(times: dict[str, float]) -> dict[str, tuple[float, float]]:
    return {label: (time / 2.9, 0.004) for label, time in times.items()}


def _provenance() -> Provenance:
    fingerprint = {"inputs": {"heads/learned": "a" * 64}, "parameters": "b" * 64, "sources": ""}
    return provenance(_experiment(), "0" * 40, fingerprint, {}, ["data: digits"], {"x86_64, CPU"})
