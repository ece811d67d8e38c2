"""Presets: what they stand for at any budget, on any schedule."""

from __future__ import annotations

import pytest

from ocm_core import covariance
from ocm_core.covariance.interface import check_defined
from ocm_core.diffusion import chains
from ocm_core.diffusion import schedule as schedules
from ocm_core.samplers.cell_sampler import kernel_of
from ocm_core.samplers.presets import PRESETS, Preset, preset_named
from ocm_core.schema.chains import OptimalChain

BUDGETS = (5, 7, 10, 15, 20, 25)
SCHEDULES = [schedules.linear(1000), schedules.cosine(1000), schedules.cosine(4000)]


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_is_defined_at_every_budget(name: str) -> None:
    preset = preset_named(name)
    method = covariance.build(preset.method)
    for evaluations in range(1, 201):
        walk = preset.walk(evaluations)
        check_defined(method, kernel_of(walk))
        if isinstance(walk.chain, OptimalChain):
            continue
        for schedule in SCHEDULES:
            chain = chains.build(walk.chain, schedule, evaluations)
            assert len(chain) == evaluations and chain[-1] == schedule.steps


def test_an_entry_holds_from_its_number_of_evaluations_on() -> None:
    walks = preset_named("quality").walks
    preset = Preset("delta", {4: walks[1], 6: walks[6]})
    expected = {1: 1, 4: 1, 5: 1, 6: 6, 7: 6}
    assert {k: preset.walk(k) for k in expected} == {k: walks[v] for k, v in expected.items()}


@pytest.mark.parametrize("evaluations", BUDGETS)
def test_quality_wastes_no_evaluation_near_the_data(evaluations: int) -> None:
    """At t = 1 there is next to no noise left, and x̂_0 would be shown as it came."""
    walk = preset_named("quality").walk(evaluations)
    assert walk.order == 3 and preset_named("quality").method == "delta"
    assert chains.build(walk.chain, SCHEDULES[0], evaluations)[0] == 70
