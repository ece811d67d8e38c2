"""The best, the second, and those within noise of the best."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr

from ocm_core.report.statistics.method_comparison import MethodComparison
from ocm_core.report.statistics.ranking import Place, places


def comparison(**seeds: list[float]) -> MethodComparison:
    values = xr.DataArray([*seeds.values()], {"method": [*seeds]}, ("method", "seed"))
    return MethodComparison.of_seeds("K = 5", values)


def test_ties_are_told_by_paired_differences() -> None:
    found = places(comparison(a=[1.0, 2.0, 3.0], b=[1.2, 2.2, 3.2], c=[0.9, 2.2, 3.05]))
    assert found == {"a": Place(0), "b": Place(2), "c": Place(1, tied=True)}


@pytest.mark.parametrize("higher", [False, True])
def test_higher_may_be_better(higher: bool) -> None:
    found = places(comparison(a=[1.0, 1.0], b=[2.0, 2.0]), higher=higher)
    assert [label for label, place in found.items() if place.order == 0] == ["b" if higher else "a"]


def test_equals_share_a_place_and_what_diverged_has_none() -> None:
    found = places(comparison(a=[1.0, 1.0], b=[1.0, 1.0], c=[np.nan, 1.0]))
    assert found == {"a": Place(0), "b": Place(0)}


def test_alone_there_is_nothing_to_be_better_than() -> None:
    assert places(comparison(a=[1.0, 2.0])) == {}
