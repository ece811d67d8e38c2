"""What is noise, with and without pairs, and how an estimate is written."""

from __future__ import annotations

from math import nan

import numpy as np
import pytest
import xarray as xr

from ocm_core.report.statistics.estimates import Estimate, estimate, independent_gap


def test_equality_is_judged_by_the_noise_of_independent_runs() -> None:
    shared = xr.DataArray([10.0, 0.0, -10.0])
    gap = independent_gap(shared + 1.0, shared)
    assert gap.mean == pytest.approx(1.0)
    assert gap.error == pytest.approx(np.sqrt(2) * 10.0 / np.sqrt(3))
    assert gap.is_noise


def test_pairing_by_seed_removes_what_seeds_share() -> None:
    shared = np.array([10.0, 0.0, -10.0])
    gap = estimate(xr.DataArray(shared + np.array([1.0, 1.1, 0.9])) - xr.DataArray(shared))
    assert gap.mean == pytest.approx(1.0)
    assert gap.error == pytest.approx(0.1 / np.sqrt(3))
    assert not gap.is_noise and not gap.is_below


def test_noise_is_two_standard_errors_wide_and_includes_its_edge() -> None:
    assert Estimate(-2.0, 1.0).is_noise and not Estimate(-2.0, 1.0).is_below
    assert Estimate(-2.1, 1.0).is_below


@pytest.mark.parametrize(
    ("mean", "error", "said"),
    [
        (-103.6, 6.4, "-104 ± 6"),
        (0.00087, 0.03, "+0.00087 ± 0.03"),
        (-720.0, 21.0, "-720 ± 21"),
        (0.0, 0.0, "+0 ± 0"),
        (-2.54, nan, "-2.5"),
        (3e7, 2e6, "+3e+07 ± 2e+06"),
    ],
)
def test_estimates_are_written_without_needless_powers(mean, error, said) -> None:
    assert str(Estimate(mean, error)) == said
