"""Results by setting: samplers merged, families of heads, and who is best at which nfe."""

from __future__ import annotations

from math import nan

import pytest

from ocm_core.results.study import Setting, nearest
from tests.results.synthetic import PARAMS, PLANE, image_rows, near, seeds, study


def test_samplers_of_one_recipe_are_one() -> None:
    found = study(image_rows())
    [(setting, columns)] = [
        (s, c) for s, c in found.grids["frechet"].items() if s.sampler == "ddpm"
    ]
    assert setting == Setting("trained", "ddpm", "", 1.0)
    assert [*columns] == [5, 10, 100]
    assert found.recipe_names["long"] == "ddpm"
    assert not [s for s in found.grids["frechet"] if s.sampler == "long"]


def test_heads_of_one_family_stand_together_the_published_first() -> None:
    labels = [*study(image_rows()).methods]
    first = labels.index("npr")
    assert labels[first : first + 5] == ["npr", "sn", "ocm", "ocm_3", "ocm_relative"]


def test_claims_are_about_the_first_family_whose_ocm_was_measured() -> None:
    both = study(image_rows())
    assert both.family_of("frechet")["ocm"] == "ocm"
    assert "ocm_relative" not in both.comparable("frechet")
    relative = study(seeds("frechet", {("ddpm", "ocm_relative", 5): near(1)}))
    assert relative.family_of("frechet")["ocm"] == "ocm_relative"
    assert study([]).family_of("frechet")["ocm"] == "ocm"


def test_the_frontier_sets_the_best_of_both_sides_against_each_other() -> None:
    frontier = study(image_rows()).frontier
    assert frontier is not None
    duels = {duel.nfe: duel for duel in frontier.duels()}
    assert (duels[5].ours, duels[5].solver) == ("quality, delta", "unipc")
    assert duels[5].gap.mean == pytest.approx(-6)
    assert [*duels] == [5, 10]  # the solver has no 100
    assert frontier.leaders() == [
        "quality, delta",
        "ddpm, beta_tilde",
        "unipc",
    ]


def test_what_diverged_is_never_best() -> None:
    rows = seeds("frechet", {("ddpm", "ocm", 5): [1, nan, 1], ("ddpm", "beta", 5): near(2)})
    frontier = study(rows).frontier
    assert frontier and frontier.best(5, solver=False) == "ddpm, beta"
    diverged = study(seeds("frechet", {("ddpm", "ocm", 5): [nan] * 3})).frontier
    assert diverged and diverged.best(5, solver=False) is None


def test_higher_is_better_where_the_measure_says_so() -> None:
    found = study(image_rows()).frontiers["recall", 1.0]
    assert found.best(5, solver=False) == "ddpm, beta_tilde"


def test_samples_of_the_first_sheet_have_the_samplers_own_names() -> None:
    shown = study(image_rows()).shown_samples
    assert ("quality", "delta", 5) in shown
    assert ("ddpm", "ocm", 10) in shown
    assert ("unipc", "none", 5) in shown
    assert {nfe for *_, nfe in shown} <= {5, 10}
    rows = [*image_rows(), *seeds("frechet", {("long", "beta_tilde", 25): near(7)})]
    assert ("long", "beta_tilde", 25) in study(rows).shown_samples


def test_guided_results_are_told_by_their_scale() -> None:
    rows = [
        row
        for scale in (1.5, 3.0)
        for row in seeds("frechet", {("ddpm", "ocm", 5): near(scale)}, guidance=scale)
    ]
    found = study(rows)
    assert found.is_guided and found.guidance == 1.5
    assert [found.place(s) for s in found.grids["frechet"]] == [
        "DDPM, guidance 1.5",
        "DDPM, guidance 3",
    ]


def test_a_plane_has_two_scores() -> None:
    rows = [
        row
        for score in ("exact", "trained")
        for row in seeds("mmd", {("ddpm", "ocm", 5): near(1), ("ddpm", "beta", 5): near(2)}, score)
    ]
    found = study(rows, PLANE)
    assert found.quality and found.quality.key == "mmd"
    assert [found.place(s) for s in found.grids["mmd"]] == [
        "DDPM, exact score",
        "DDPM, trained score",
    ]
    assert found.frontier and len(found.frontier.columns[5].entries) == 2  # the last score's


@pytest.mark.parametrize(
    ("wanted", "present", "found"),
    [((5, 10, 25), (5, 7, 10, 20), [5, 10, 20]), ((5,), (), []), ((10,), (2, 100), [2])],
)
def test_nearest_is_by_ratio(
    wanted: tuple[int, ...], present: tuple[int, ...], found: list[int]
) -> None:
    assert nearest(wanted, present) == found


def test_missing_parameters_have_a_default() -> None:
    found = study(image_rows(), {"methods": PARAMS["methods"]})
    assert found.param("sample.count", 7) == 7
    assert found.frontier is not None
