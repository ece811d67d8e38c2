"""What the covariances cost, in a sentence."""

from __future__ import annotations

import pytest

from ocm_core.report.tables.cost import Cost


@pytest.mark.parametrize(
    ("error", "shown"), [(0.0712, "0.07"), (1.4, "1"), (12.3, "10"), (140.0, "100")]
)
def test_an_error_is_written_as_people_write_it(error: float, shown: str) -> None:
    """Not as `1e+01`."""
    cost = Cost("batches of 64", 1000, {"score": 15.1, "ocm": 16.4}, {"ocm": (62.71, error)})
    assert f"62.7 ± {shown} times as long with ocm" in cost.finding
