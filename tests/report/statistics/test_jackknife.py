"""One seed with the jackknife's errors, where several seeds would be."""

from __future__ import annotations

from dataclasses import replace
from math import isnan

import numpy as np
import pytest
import xarray as xr

from ocm_core.report.claims.image_claims import claims
from ocm_core.report.image_page import page
from ocm_core.report.page.verdicts import Verdict
from ocm_core.report.statistics.image_results import SAMPLE_MEASURES, ImageResults
from ocm_core.report.statistics.method_comparison import MethodComparison
from tests.report.synthetic_images import PLAIN, SMALL, image_results, images, results

BLOCKS = 4
SHARED = np.array([3.0, -1.0, -1.0, -1.0])  # by which every cell deviates
OWN = np.array([0.0, 1.0, -1.0, 0.0])


def jackknifed(name: str = PLAIN, shared: float = 1e-3, own: float = 1e-5) -> xr.Dataset:
    """The first seed; cells share most of their noise, and have some of their own."""
    found = results(name).isel(seed=[0])
    cells = np.arange(found["fid"].size).reshape(found["fid"].shape)
    noise = shared * SHARED + own * (cells[..., None] % 5) * OWN
    measured = [str(key) for key in found if str(key).startswith(SAMPLE_MEASURES)]
    for key in measured:
        known = found[key].notnull().values[..., None]
        values = np.where(known, noise, np.nan)
        found[f"jackknife_{key}"] = ((*found[key].dims, "block"), values)
    return found


def the_results(found: xr.Dataset) -> ImageResults:
    return image_results(PLAIN, found)


def test_values_are_those_of_the_seed() -> None:
    given = jackknifed()
    plain, known = (the_results(x) for x in (results().isel(seed=[0]), given))
    for key in SAMPLE_MEASURES:
        xr.testing.assert_allclose(plain.mean(key), known.mean(key))
    assert float(known.dataset["clamped"].max()) == float(given["clamped"].max())


def test_errors_are_the_jackknifes() -> None:
    known = the_results(jackknifed(shared=1.0, own=0.0))
    expected = np.sqrt((BLOCKS - 1) / BLOCKS * np.square(SHARED).sum())
    errors = known.error("fid")
    assert errors.values[errors.notnull().values] == pytest.approx(expected)


def test_what_pairs_share_cancels() -> None:
    known = the_results(jackknifed(shared=1.0, own=0.0))
    at = known.dataset["fid"].sel(sampler="ddpm", steps=10, guidance=1.0)
    comparison = MethodComparison.of_seeds("K = 10", at)
    assert comparison.gap("ocm", "beta").error == pytest.approx(0.0, abs=1e-9)
    assert comparison.errors["ocm"] > 1.0


def test_claims_about_distances_are_decided() -> None:
    def verdicts(found: xr.Dataset) -> dict[str, set[Verdict]]:
        return {c.key: {case.verdict for case in c.cases} for c in claims(the_results(found))}

    undecided, decided = verdicts(results().isel(seed=[0])), verdicts(jackknifed())
    for key in ("f", "g"):
        assert undecided[key] == {Verdict.UNDECIDED}
        assert Verdict.UNDECIDED not in decided[key]


def test_one_seed_has_no_spread_over_seeds() -> None:
    cells = the_results(jackknifed()).cells("fid")
    assert cells and all(isnan(cell.deviation) and cell.error > 0 for cell in cells)


def test_the_page_says_where_its_errors_are_from() -> None:
    """Of every space; in place of the sentence that nothing is known."""
    given = replace(images(SMALL), dataset=jackknifed(SMALL))
    text = str(page(given))
    assert f"by a jackknife over {BLOCKS} blocks" in text
    assert "Features of a classifier trained on these data; 50000 samples a cell, of one" in text
    assert "whether that is noise is not known" not in text
    assert "mean over" not in text.replace("the mean over", "")
