"""The metrics file and the plot data: what `dvc metrics diff` and `dvc plots` read."""

from __future__ import annotations

import numpy as np
import pytest

from ocm_core.report.metrics import nested
from ocm_core.report.plot_data import frames
from tests.report.synthetic import (
    DDIM,
    DDPM,
    ERRORS,
    JITTER,
    LEVELS,
    METHODS,
    STEPS,
    TIMES,
    results,
)


def test_metrics_read_like_a_sentence() -> None:
    found = nested(results())
    assert found["mmd_true_score"]["ddpm"]["ocm"]["K5"] == pytest.approx(LEVELS["ocm"])
    assert found["covariance_error_learned_score"]["sn"]["t100"] == 1e-3 * ERRORS["sn"]
    assert found["clamped_learned_score"]["ddim"]["delta"] == {f"K{k}": 0.0 for k in STEPS}


def test_undefined_combinations_are_absent_and_not_null() -> None:
    found = nested(results())
    assert set(found["mmd_true_score"]["ddpm"]) == set(DDPM)
    assert set(found["mmd_true_score"]["ddim"]) == set(DDIM)


def test_metrics_have_six_digits() -> None:
    data = results()
    data["mmd"].loc[{"method": "ocm"}] = 0.123456789
    assert nested(data)["mmd_true_score"]["ddpm"]["ocm"]["K2"] == 0.123457


def test_metrics_of_what_was_not_evaluated_are_absent() -> None:
    assert not any("mmd" in name for name in nested(results()[["covariance_error"]]))
    assert not any("covariance" in name for name in nested(results()[["mmd", "clamped"]]))


def test_plot_data_has_a_column_per_defined_method() -> None:
    tables = frames(results())
    assert set(tables) == {
        f"{name}-{score}"
        for score in ("true", "learned")
        for name in ("covariance_error", "mmd-ddpm", "mmd-ddim")
    }
    assert tables["mmd-ddim-true"].columns == ("steps", *_defined(DDIM))
    assert tables["covariance_error-learned"].columns == ("t", *METHODS)
    assert [row[0] for row in tables["covariance_error-true"].rows] == list(TIMES)


def _defined(methods: tuple[str, ...]) -> list[str]:
    return [method for method in METHODS if method in methods]


def test_plot_data_are_means_over_seeds_as_csv() -> None:
    data = results()
    data["mmd"].loc[{"sampler": "ddim", "method": "sn", "steps": 2}] = np.nan
    header, first, second, *_ = frames(data)["mmd-ddim-true"].csv.splitlines()
    place = header.split(",").index("sn")
    assert first.split(",")[place] == ""
    assert float(second.split(",")[place]) == pytest.approx(LEVELS["sn"], abs=JITTER * 1e-3)
    assert first.startswith("2,") and second.startswith("3,")
