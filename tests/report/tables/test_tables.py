"""Tables of probes in training and of clamped variances."""

from __future__ import annotations

import pytest

from ocm_core.report.tables import probes
from ocm_core.report.tables.methods import clamped_shares
from tests.report.synthetic_images import GUIDED, STEPS, experiment, image_results


def test_more_probes_in_training_are_tabled_by_their_number() -> None:
    counts = probes.probe_counts(experiment().methods)
    assert counts == {"ocm": 1, "ocm_3": 3, "ocm_5": 5, "ocm_10": 10}
    table = probes.table(image_results(), counts)
    assert [row[0] for row in table.rows] == [m for m in (1, 3, 5, 10) for _ in STEPS]
    row = next(row for row in table.rows if row[:3] == (10, "ocm_10", 25))
    assert row[3] == pytest.approx(0.97 * 6, rel=1e-3) and row[5] == pytest.approx(3.746, rel=1e-3)
    assert probes.probe_counts(experiment(GUIDED).methods) == {}


def test_clamped_shares_are_tabled_for_those_that_were() -> None:
    table = clamped_shares(image_results(GUIDED).dataset["clamped"])
    assert table is None
    plain = clamped_shares(image_results().dataset["clamped"])
    assert plain is not None
    assert plain.columns == ("sampler", "method", *(f"K = {k}" for k in STEPS))
    assert [row[:2] for row in plain.rows] == [("ddpm", "sn"), ("ddim", "sn")]
    assert plain.rows[0][3:] == (1.0, 1.0, 1.0)
    longer = image_results().dataset["clamped"].reindex(steps=[*STEPS, 1000])  # K of the bound only
    assert repr(clamped_shares(longer)) == repr(plain)
    guided = image_results(GUIDED).dataset["clamped"]
    touched = clamped_shares(guided.where(guided.isnull(), 0.5))
    assert touched is not None and touched.columns[:3] == ("sampler", "guidance", "method")
