"""The frontier sets the best of ours against the best of the rivals at the same budget."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr

from ocm_core.report.statistics.frontier import Frontier, Route

RIVALS = frozenset({"unipc", "heun"})
OURS, THEIRS = Route("quality", "delta", False), Route("unipc", "none", True)


def frontier(*, higher: bool = False) -> Frontier:
    """Ours win at 5 evaluations and lose at 10; nobody of ours was sampled at 9, nor Heun at 10."""
    axes = {
        "sampler": ["ddpm", "quality", "unipc", "heun"],
        "method": ["ocm", "delta", "none"],
        "steps": [5, 9, 10],
        "seed": [0, 1],
    }
    values = xr.DataArray(np.full([4, 3, 3, 2], np.nan), axes, list(axes))
    for sampler, method, means in (
        ("ddpm", "ocm", {5: 9.0, 10: 7.0}),
        ("quality", "delta", {5: 6.0, 10: 5.0}),
        ("unipc", "none", {5: 8.0, 9: 4.5, 10: 4.0}),
        ("heun", "none", {9: 5.0}),
    ):
        for steps, mean in means.items():
            values.loc[sampler, method, steps] = [mean - 1, mean + 1]
    return Frontier(values, RIVALS, higher)


def test_the_best_of_both_sides_meet_where_both_were_sampled() -> None:
    duels = list(frontier().duels())
    assert [(duel.evaluations, duel.ours, duel.rival) for duel in duels] == [
        (5, OURS, THEIRS),
        (10, OURS, THEIRS),
    ]
    assert [duel.means for duel in duels] == [(6.0, 8.0), (5.0, 4.0)]


def test_differences_are_taken_seed_by_seed() -> None:
    """Both swing by ±1 with the seed, so that the difference has no noise."""
    gaps = [duel.gap for duel in frontier().duels()]
    assert [gap.mean for gap in gaps] == pytest.approx([-2.0, 1.0])
    assert [gap.error for gap in gaps] == pytest.approx([0.0, 0.0])


def test_higher_is_better_for_recall() -> None:
    first, second = frontier(higher=True).duels()
    assert first.ours == Route("ddpm", "ocm", False) and second.ours == first.ours


def test_a_route_that_diverged_is_nobodys_best() -> None:
    found = frontier()
    found.values.loc["quality", "delta", 5, 1] = np.nan
    assert next(found.duels()).ours == Route("ddpm", "ocm", False)


def test_only_leaders_are_drawn() -> None:
    assert frontier().leaders() == [OURS, THEIRS]
    assert [route.label for route in frontier().routes] == [
        "ddpm, ocm",
        "quality, delta",
        "unipc",
        "heun",
    ]
