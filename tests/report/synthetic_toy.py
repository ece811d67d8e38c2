"""A small toy experiment with made-up numbers, in the shape that the pipeline's have."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import xarray as xr

from ocm_core.diffusion.mixture import mixture
from ocm_core.params.document import read_yaml, validate
from ocm_core.report.page.provenance import REMAKE, Provenance
from ocm_core.report.statistics.head_families import HEAD_KINDS, HeadFamily
from ocm_core.report.toy_page import ToyPageInputs
from ocm_core.schema.experiment import Experiment

RESOLVED = Path(__file__).resolve().parents[2] / "params/resolved/toy_mog9.yaml"
STEPS = (2, 3, 5, 10, 20)
SEEDS = 5
TIMES = (1, 10, 100, 1000)
NPR, SN, OCM = "npr_relative", "sn_relative", "ocm_relative"
DDPM = ("beta", "beta_tilde", NPR, SN, OCM, "exact_diag", "exact_full")
DDIM = ("delta", NPR, SN, OCM, "exact_diag", "exact_full")
METHODS = tuple(dict.fromkeys(DDPM + DDIM))
LEVELS = {
    "beta": 0.8,
    "beta_tilde": 0.6,
    "delta": 0.5,
    NPR: 0.25,
    SN: 0.24,
    OCM: 0.2,
    "exact_diag": 0.2,
    "exact_full": 0.1,
}
ERRORS = {**LEVELS, "exact_diag": 1e-9, "exact_full": 1e-9}
JITTER = 1e-3
RELATIVE = HeadFamily(False, {NPR: "npr", SN: "sn", OCM: "ocm"})
PUBLISHED = HeadFamily(True, {kind: kind for kind in HEAD_KINDS})


def results(
    levels: Mapping[str, float] = LEVELS,
    errors: Mapping[str, float] = ERRORS,
    seeds: int = SEEDS,
) -> xr.Dataset:
    """Every MMD is its method's level plus a jitter over seeds of mean zero."""
    axes = {
        "score": ["true", "learned"],
        "sampler": ["ddpm", "ddim"],
        "method": list(METHODS),
        "steps": list(STEPS),
        "seed": list(range(seeds)),
    }
    shape = [len(values) for values in axes.values()]
    found = xr.Dataset(
        {name: (list(axes), np.full(shape, np.nan)) for name in ("mmd", "clamped")}, coords=axes
    )
    wave = np.array([1.0, -1.0, 0.5, -0.5, 0.0])[:seeds]
    for sampler, defined in {"ddpm": DDPM, "ddim": DDIM}.items():
        for i, method in enumerate(defined):
            place = {"sampler": sampler, "method": method}
            found["mmd"].loc[place] = levels[method] + JITTER * np.roll(wave, i)
            found["clamped"].loc[place] = 0.0
    found["mmd_floor"] = ("seed", np.full(seeds, 0.05) + JITTER * wave)
    error = np.array([[[errors[m] * 1e-3 for _ in TIMES] for m in METHODS]] * 2)
    found["covariance_error"] = (("score", "method", "t"), error)
    found["covariance_error_se"] = (("score", "method", "t"), 0.01 * error)
    bits = np.array([[[levels[m] + 10 / k for k in STEPS] for m in METHODS]] * 2)
    bits[:, METHODS.index("delta")] = np.nan
    axes = ("score", "chain", "method", "steps")
    found["nll"] = (axes, np.stack([bits, bits / 2], axis=1))
    found["nll_se"] = (axes, np.full_like(found["nll"], 0.01))
    found["nll_difference"] = found["nll"] - found["nll"].isel(chain=0)
    found["nll_difference_se"] = (axes, np.full_like(found["nll"], 0.001))
    return found.assign_coords(t=list(TIMES), chain=["ddpm", "ddpm_optimal"])


def as_published(found: xr.Dataset) -> xr.Dataset:
    """With the labels of heads of the papers' form."""
    labels = [RELATIVE.kinds.get(label, label) for label in found["method"].values.tolist()]
    return found.assign_coords(method=labels)


def of_both_families(published: xr.Dataset, relative: xr.Dataset) -> xr.Dataset:
    """The heads of both, and the other methods once."""
    heads = relative.sel({"method": list(RELATIVE.kinds)})
    dims = [name for name in relative.data_vars if "method" in relative[name].dims]
    whole = as_published(published)
    return xr.concat([whole[dims], heads[dims]], "method").merge(whole.drop_vars([*dims, "method"]))


def experiment(title: str = "A toy", summary: str = "Nine modes.") -> Experiment:
    tree = read_yaml(RESOLVED)
    tree["report"] |= {"title": title, "summary": summary}
    return validate(tree, RESOLVED)


def toy(title: str = "A toy", summary: str = "Nine modes.") -> ToyPageInputs:
    source = np.random.Generator(np.random.Philox(0))
    truth = mixture(experiment().data)
    test = truth.draw(60, source)
    return ToyPageInputs(
        experiment=experiment(title, summary),
        dataset=results(),
        truth=truth,
        test=test,
        samples={
            (sampler, k): {
                label: truth.draw(40, source) for label in ("beta_tilde", OCM, "exact_diag")
            }
            for sampler in ("ddpm", "ddim")
            for k in (5, 10, 20)
        },
        curves={"heads on the true score": [{"iteration": i, OCM: 1 / i} for i in range(1, 30)]},
        head_parameters={OCM: 51586},
        chains={OCM: {1: (900,), 2: (20, 1000)}},
        provenance=Provenance({REMAKE: "snakemake --cores 2 reports/toy_mog9.html"}),
    )
