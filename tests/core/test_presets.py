"""Presets: what they stand for at any budget, on any schedule."""

from __future__ import annotations

import pytest

from ocm_core import covariance
from ocm_core.covariance.interface import check_defined
from ocm_core.diffusion import kernels
from ocm_core.diffusion import schedule as schedules
from ocm_core.diffusion import timesteps as rules
from ocm_core.sampling.presets import PRESETS, Preset, preset_named
from ocm_core.schema.timesteps import OptimalTimesteps

BUDGETS = (5, 7, 10, 15, 20, 25)
SCHEDULES = [schedules.linear(1000), schedules.cosine(1000), schedules.cosine(4000)]


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_is_defined_at_every_budget(name: str) -> None:
    preset = preset_named(name)
    method = covariance.build(preset.method)
    for nfe in range(1, 201):
        recipe = preset.recipe(nfe)
        check_defined(method, kernels.build(recipe.kind, **recipe.options))
        if isinstance(recipe.timesteps, OptimalTimesteps):
            continue
        for schedule in SCHEDULES:
            timesteps = rules.build(recipe.timesteps, schedule, nfe)
            assert len(timesteps) == nfe and timesteps[-1] == schedule.steps


def test_an_entry_holds_from_its_number_of_evaluations_on() -> None:
    recipes = preset_named("quality").recipes
    preset = Preset("delta", {4: recipes[1], 6: recipes[6]})
    expected = {1: 1, 4: 1, 5: 1, 6: 6, 7: 6}
    assert {k: preset.recipe(k) for k in expected} == {k: recipes[v] for k, v in expected.items()}


@pytest.mark.parametrize("nfe", BUDGETS)
def test_quality_wastes_no_evaluation_near_the_data(nfe: int) -> None:
    """At t = 1 there is next to no noise left, and x̂_0 would be shown as it came."""
    recipe = preset_named("quality").recipe(nfe)
    assert recipe.order == 3 and preset_named("quality").method == "delta"
    assert rules.build(recipe.timesteps, SCHEDULES[0], nfe)[0] == 70
