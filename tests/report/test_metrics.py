"""The metrics file and the plot data: what `dvc metrics diff` and `dvc plots` read."""

from __future__ import annotations

import numpy as np
import pytest

from ocm_core.pipeline.table import plots
from ocm_core.report.metrics import nested
from ocm_core.report.plot_data import frames
from tests.report import synthetic_images
from tests.report.synthetic_images import GUIDED, PLAIN
from tests.report.synthetic_toy import (
    DDIM,
    DDPM,
    ERRORS,
    JITTER,
    LEVELS,
    METHODS,
    OCM,
    SN,
    STEPS,
    TIMES,
    results,
)


def test_metrics_read_like_a_sentence() -> None:
    found = nested(results())
    assert found["mmd_true_score"]["ddpm"][OCM]["K5"] == pytest.approx(LEVELS[OCM])
    spread = results()["mmd"].sel({"score": "true", "sampler": "ddpm", "method": OCM, "steps": 5})
    assert found["mmd_true_score_std"]["ddpm"][OCM]["K5"] == pytest.approx(
        float(spread.std(ddof=1)), rel=1e-5
    )
    assert found["covariance_error_learned_score"][SN]["t100"] == 1e-3 * ERRORS[SN]
    bits = found["nll_bpd_learned_score"]
    assert bits["ddpm_optimal"][OCM]["K5"] == pytest.approx(bits["ddpm"][OCM]["K5"] / 2)
    assert found["nll_bpd_true_score_se"]["ddpm"][OCM]["K5"] == 0.01
    assert found["clamped_learned_score"]["ddim"]["delta"] == {f"K{k}": 0.0 for k in STEPS}


def test_undefined_combinations_are_absent_and_not_null() -> None:
    found = nested(results())
    assert set(found["mmd_true_score"]["ddpm"]) == set(DDPM)
    assert set(found["mmd_true_score"]["ddim"]) == set(DDIM)


def test_metrics_have_six_digits() -> None:
    data = results()
    data["mmd"].loc[{"method": OCM}] = 0.123456789
    assert nested(data)["mmd_true_score"]["ddpm"][OCM]["K2"] == 0.123457


def test_metrics_of_what_was_not_evaluated_are_absent() -> None:
    assert not any("mmd" in name for name in nested(results()[["covariance_error"]]))
    assert not any("covariance" in name for name in nested(results()[["mmd", "clamped"]]))


def test_plot_data_has_a_column_per_defined_method() -> None:
    tables = frames(results())
    assert set(tables) == {
        f"{name}-{score}"
        for score in ("true", "learned")
        for name in ("covariance_error", "mmd-ddpm", "mmd-ddim", "nll-ddpm", "nll-ddpm_optimal")
    }
    assert tables["mmd-ddim-true"].columns == ("steps", *_defined(DDIM))
    assert tables["covariance_error-learned"].columns == ("t", *METHODS)
    assert [row[0] for row in tables["covariance_error-true"].rows] == list(TIMES)


def _defined(methods: tuple[str, ...]) -> list[str]:
    return [method for method in METHODS if method in methods]


def test_plot_data_are_means_over_seeds_as_csv() -> None:
    data = results()
    data["mmd"].loc[{"sampler": "ddim", "method": SN, "steps": 2}] = np.nan
    header, first, second, *_ = frames(data)["mmd-ddim-true"].csv.splitlines()
    place = header.split(",").index(SN)
    assert first.split(",")[place] == ""
    assert float(second.split(",")[place]) == pytest.approx(LEVELS[SN], abs=JITTER * 1e-3)
    assert first.startswith("2,") and second.startswith("3,")


def _flat(tree: object, path: str = "") -> dict[str, object]:
    """`fid.ddpm.ocm.K10`, as `dvc metrics diff` prints it."""
    if not isinstance(tree, dict):
        return {path: tree}
    parts = [_flat(branch, f"{path}.{key}" if path else key) for key, branch in tree.items()]
    return {key: value for part in parts for key, value in part.items()}


def test_metrics_of_images_have_the_promised_paths() -> None:
    found = _flat(nested(synthetic_images.results()))
    cells = synthetic_images.results().sel({"sampler": "ddpm", "method": "ocm", "steps": 25})
    expected = float(f"{cells['fid'].mean():.6g}")
    assert found["fid.ddpm.ocm.K25"] == pytest.approx(expected, rel=1e-5)
    assert found["fid_std.ddpm.ocm.K25"] == pytest.approx(float(cells["fid"].std(ddof=1)), rel=1e-5)
    assert found["nll_bpd.ddpm.beta.K100"] == pytest.approx(2 + 1.6 * 1.2, rel=1e-4)
    assert found["nll_bpd.ddpm_optimal.beta.K100"] == pytest.approx(2 + 0.8 * 1.2, rel=1e-4)
    errors = synthetic_images.results()["nll_se"].sel(
        {"chain": "ddpm", "method": "beta", "steps": 100}
    )
    assert found["nll_bpd_se.ddpm.beta.K100"] == pytest.approx(float(errors.squeeze()), rel=1e-5)
    assert {"kid.ddim.delta.K10", "precision.few.ocm.K5", "clamped.ddpm.sn.K10"} <= set(found)
    assert not any("cfg" in path or "score" in path for path in found)
    assert "fid.ddim.beta.K10" not in found and "nll_bpd.ddpm.delta.K10" not in found


def test_metrics_of_guided_images_end_in_their_scale() -> None:
    found = _flat(nested(synthetic_images.results(GUIDED)))
    assert found["fid.ddpm.ocm.K10.cfg1.75"] == pytest.approx(12 / 1.75, rel=1e-3)
    assert "recall_std.ddim.delta.K25.cfg1.5" in found
    assert "fid.ddpm.ocm.K25.cfg4" not in found


def test_one_seed_has_no_spread() -> None:
    found = nested(synthetic_images.results().isel(seed=[0]))
    assert "fid" in found and not any(name.endswith("_std") for name in found)


def test_a_diverged_seed_takes_its_cell_out() -> None:
    data = synthetic_images.results()
    data["fid"].loc[{"sampler": "ddpm", "method": "ocm", "steps": 25, "seed": 1}] = np.nan
    found = _flat(nested(data))
    assert "fid.ddpm.ocm.K25" not in found and "recall.ddpm.ocm.K25" in found


@pytest.mark.parametrize("name", [PLAIN, GUIDED])
def test_plot_data_of_images_are_the_files_that_the_stage_declares(name: str) -> None:
    tables = frames(synthetic_images.results(name))
    declared = plots(synthetic_images.experiment(name))
    assert set(tables) == set(declared)
    assert tables["fid-ddim-published"].rows[0][0] == 10
    for file, (x, columns) in declared.items():
        assert tables[file].columns[0] == x and set(tables[file].columns[1:]) == set(columns)


def test_plot_data_of_guided_images_are_of_the_least_scale() -> None:
    table = frames(synthetic_images.results(GUIDED))["fid-ddpm-published"]
    place = table.columns.index("ocm")
    assert [row[place] for row in table.rows] == pytest.approx(
        [12 / 1.5, 6 / 1.5, 3 / 1.5], rel=1e-3
    )


def test_rows_of_plot_data_are_in_order_whatever_the_parameters_say() -> None:
    data = synthetic_images.results()
    shuffled = data.isel(steps=[2, 0, 3, 1])
    assert frames(shuffled)["nll-ddpm-published"].rows == frames(data)["nll-ddpm-published"].rows
    assert [row[0] for row in frames(shuffled)["fid-ddim-published"].rows] == [10, 25, 100]
