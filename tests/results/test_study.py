"""Results by setting, families of heads, who is best at which nfe, and what the paper claims."""

from collections.abc import Mapping
from math import nan
from typing import Any

import pytest

from ocm_core.results.claims import CLAIMS, Verdict, check, summary
from ocm_core.results.study import Setting, nearest
from ocm_core.results.table import Row
from tests.results.synthetic import PARAMS, PLANE, Place, bounds, image_rows, near, seeds, study


def test_samplers_of_one_recipe_and_heads_of_one_family_stand_together() -> None:
    found = study(image_rows())
    [(setting, columns)] = [i for i in found.grids["frechet"].items() if i[0].sampler == "ddpm"]
    assert setting == Setting("trained", "ddpm", "", 1.0)
    assert [*columns] == [5, 10, 100]
    assert found.recipe_names["long"] == "ddpm"
    assert not [s for s in found.grids["frechet"] if s.sampler == "long"]
    labels = [*found.methods]
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
    assert frontier.sides[5] == ("quality, delta", "unipc")
    gaps = frontier.gaps()
    assert [*gaps] == [5, 10] and gaps[5].mean == pytest.approx(-6)  # the solver has no 100
    assert frontier.leaders() == ["quality, delta", "ddpm, beta_tilde", "unipc"]


def test_products_with_the_jacobian_are_evaluations_of_the_frontier() -> None:
    lanczos = {"kind": "lanczos", "products": 2, "needs": "nothing"}
    params = PARAMS | {"methods": PARAMS["methods"] | {"lanczos": lanczos}}
    made = {("ddpm", m, k): near(v) for m, k, v in (("lanczos", 5, 1), ("lanczos", 10, 0.5))}
    others = {("ddpm", "beta", k): near(20) for k in (5, 25)}
    found = study(seeds("frechet", made | others), params).frontier
    assert found and [*found.columns] == [5, 25]  # 50 evaluations have nothing to compare with
    assert found.sides[5][0] == "ddpm, beta"
    assert found.sides[25][0] == "ddpm, lanczos"


def test_what_diverged_is_never_best_and_higher_may_be_better() -> None:
    rows = seeds("frechet", {("ddpm", "ocm", 5): [1, nan, 1], ("ddpm", "beta", 5): near(2)})
    diverged = seeds("frechet", {("ddpm", "ocm", 5): [nan] * 3})
    for given, best in ((rows, "ddpm, beta"), (diverged, None)):
        frontier = study(given).frontier
        assert frontier and frontier.sides[5][0] == best
    found = study(image_rows()).frontiers["recall", 1.0]
    assert found.sides[5][0] == "ddpm, beta_tilde"


def test_samples_of_the_first_sheet_have_the_samplers_own_names() -> None:
    shown = study(image_rows()).shown_samples
    assert {("quality", "delta", 5), ("ddpm", "ocm", 10), ("unipc", "none", 5)} <= {*shown}
    assert {nfe for *_, nfe in shown} <= {5, 10}
    rows = [*image_rows(), *seeds("frechet", {("long", "beta_tilde", 25): near(7)})]
    assert ("long", "beta_tilde", 25) in study(rows).shown_samples


def test_settings_are_told_by_guidance_and_score() -> None:
    place: Place = ("ddpm", "ocm", 5)
    rows = [r for g in (1.5, 3.0) for r in seeds("frechet", {place: near(g)}, guidance=g)]
    found = study(rows)
    assert found.is_guided and found.guidance == 1.5
    told = [found.place(s) for s in found.grids["frechet"]]
    assert told == ["DDPM, guidance 1.5", "DDPM, guidance 3"]
    values = {place: near(1), ("ddpm", "beta", 5): near(2)}
    plane = study([r for s in ("exact", "trained") for r in seeds("mmd", values, s)], PLANE)
    assert plane.quality and plane.quality.key == "mmd"
    told = [plane.place(s) for s in plane.grids["mmd"]]
    assert told == ["DDPM, exact score", "DDPM, trained score"]
    assert plane.frontier and len(plane.frontier.columns[5].entries) == 2  # the last score's


def test_nearest_is_by_ratio_and_missing_parameters_have_a_default() -> None:
    assert nearest((5, 10, 25), (5, 7, 10, 20)) == [5, 10, 20]
    assert nearest((5,), ()) == [] and nearest((10,), (2, 100)) == [2]
    found = study(image_rows(), {"methods": PARAMS["methods"]})
    assert found.param("sample.count", 7) == 7
    assert found.frontier is not None


HOLDS, NOISE, UNDECIDED, FAILS = Verdict


def verdict(key: str, rows: list[Row], params: Mapping[str, Any] = PARAMS) -> Verdict | None:
    """The verdict on one claim; None where it is left out."""
    found = {claim.key: claim for claim in check(study(rows, params))}
    return found[key].verdict if key in found else None


NLL: dict[str, list[tuple[dict[tuple[str, int], float], Verdict | None]]] = {
    "a": [
        ({("ocm", 25): 3.0, ("npr", 25): 3.1}, HOLDS),
        ({("ocm", 25): 3.1, ("npr", 25): 3.0}, FAILS),
        ({("ocm", 25): 3.01, ("npr", 25): 3.0}, HOLDS),  # within one standard error
        ({("ocm", 25): 3.1, ("ocm_3", 25): 3.0, ("npr", 25): 3.2}, HOLDS),  # its own kind
        ({("ocm", 25): 3.1, ("ocm_relative", 25): 3.0, ("npr", 25): 3.2}, HOLDS),  # another family
        ({("npr", 25): 3.0}, UNDECIDED),
        ({("ocm", 5): 3.0}, None),  # nothing from 25 on
    ],
    "b": [
        ({("ocm", 5): 4.0, ("analytic", 5): 5.0, ("beta", 5): 5.0}, HOLDS),
        ({("ocm", 5): 4.0, ("analytic", 5): 5.0, ("beta", 5): 3.0}, FAILS),
        ({("ocm", 5): 4.0, ("analytic", 5): 4.01}, NOISE),
        ({("ocm", 5): 4.0, ("analytic", 25): 5.0}, UNDECIDED),
    ],
    "c": [
        ({("ocm", 5): 4.0, ("sn", 5): 6.0, ("beta_tilde", 5): 9.0}, HOLDS),
        ({("ocm", 5): 4.0, ("sn", 5): 4.9, ("beta_tilde", 5): 9.0}, FAILS),
    ],
    "d": [
        ({("ocm", 5): 4.0, ("ocm", 10): 3.0, ("ocm", 25): 2.0}, HOLDS),
        ({("ocm", 5): 4.0, ("ocm", 10): 3.0, ("ocm", 25): 3.5}, FAILS),
        ({("ocm", 5): 4.0, ("ocm", 10): 3.0, ("ocm", 25): 3.01}, NOISE),
        ({("ocm", 5): 4.0, ("npr", 5): 4.1}, UNDECIDED),  # nothing to fall from
        ({("ocm", 5): 4.0, ("npr", 10): 4.1}, UNDECIDED),
        ({("ocm", 5): 4.0, ("ocm", 10): 3.0, ("npr", 10): 4.1}, HOLDS),
    ],
}


@pytest.mark.parametrize(("key", "values", "expected"), [(k, *c) for k in NLL for c in NLL[k]])
def test_likelihood(
    key: str, values: dict[tuple[str, int], float], expected: Verdict | None
) -> None:
    assert verdict(key, bounds(values)) == expected


def test_only_the_first_rule_of_timesteps_and_images_count() -> None:
    first = bounds({("ocm", 25): 3.0, ("npr", 25): 3.1})
    second = bounds({("ocm", 25): 3.1, ("npr", 25): 3.0}, rule="optimal")
    assert verdict("a", [*first, *second]) is HOLDS
    assert verdict("b", bounds({("ocm", 5): 1.0, ("beta", 5): 2.0}), PLANE) is None


def at(nfe: int, sampler: str = "ddpm", **values: list[float]) -> dict[Place, list[float]]:
    return {(sampler, method, nfe): found for method, found in values.items()}


SAMPLES = {
    "e": ("frechet", at(5, beta=near(9), ocm=near(5)), HOLDS),
    "e, not the worst": ("frechet", at(5, beta=near(5), ocm=near(9)), FAILS),
    "f": ("frechet", at(5, ocm=near(5), beta=near(9)), HOLDS),
    "f, behind": ("frechet", at(5, ocm=near(9), beta=near(5)), FAILS),
    "f, diverged": ("frechet", at(5, ocm=[5, nan, 5], beta=near(5)), FAILS),
    "f, one seed": ("frechet", at(5, ocm=[5], beta=[6]), UNDECIDED),
    "g": ("recall", at(5, ocm=near(0.9), beta_tilde=near(0.8)), HOLDS),
    "g, noise in pairs": ("recall", at(5, ocm=[0.8, 0.9], beta_tilde=[0.9, 0.8]), NOISE),
    "g, lower": ("recall", at(5, ocm=near(0.8), beta_tilde=near(0.9)), FAILS),
    "h": ("recall", at(5, ocm=near(0.8), beta_tilde=near(0.9)), None),  # without guidance
    "k": ("mmd", at(5, ocm=near(1), exact_diag=near(1.001)), HOLDS),
    "k, apart": ("mmd", at(5, ocm=near(1), exact_diag=near(2)), FAILS),
    "l": ("mmd", at(5, ocm=near(1), beta=near(2), exact_diag=near(0.5)), HOLDS),
    "l, behind": ("mmd", at(5, ocm=near(3), beta=near(2)), FAILS),
    "m": ("mmd", at(10, exact_full=near(1), exact_diag=near(2)), HOLDS),
    "n": ("mmd", at(2, ocm=near(1), beta=near(2)), HOLDS),
    "n, one seed": ("mmd", at(2, ocm=[1], beta=[2]), UNDECIDED),
    "n, diverged": ("mmd", at(2, ocm=near(1), beta=near(2), sn=[nan] * 3), FAILS),
}


@pytest.mark.parametrize("case", SAMPLES)
def test_samples(case: str) -> None:
    measure, values, expected = SAMPLES[case]
    params = PLANE if measure == "mmd" else PARAMS
    assert verdict(case[0], seeds(measure, values), params) == expected


def test_with_guidance_recall_is_compared_at_the_smallest_nfe_of_each_sampler() -> None:
    values = {
        **at(5, ocm=near(0.9), beta_tilde=near(0.8)),
        **at(10, ocm=near(0.8), beta_tilde=near(0.9)),
        **at(5, "ddim", ocm=near(0.9), delta=near(0.8)),
    }
    rows = seeds("recall", values, guidance=1.5)
    assert verdict("g", rows) is None
    [claim] = [c for c in check(study(rows)) if c.key == "h"]
    assert claim.verdict is HOLDS
    assert [case.where for case in claim.cases] == [
        "DDPM, guidance 1.5, against beta_tilde",
        "DDIM, guidance 1.5, against delta",
    ]


def errors(score: str, **values: list[float]) -> list[Row]:
    return [
        Row("covariance_error", v, 0.01, score, method=method, timesteps=str(10 * i + 1))
        for method, found in values.items()
        for i, v in enumerate(found)
    ]


@pytest.mark.parametrize(
    ("ocm", "npr", "expected"),
    [([1, 1], [2, 2], HOLDS), ([1, 2.01], [2, 2], NOISE), ([1, 3], [2, 2], FAILS)],
)
def test_covariance_error(ocm: list[float], npr: list[float], expected: Verdict) -> None:
    for key, score in (("i", "exact"), ("j", "trained")):
        assert verdict(key, errors(score, ocm=ocm, npr=npr), PLANE) == expected


def test_a_claim_has_its_worst_verdict_and_says_its_numbers() -> None:
    checked = [*check(study(image_rows()))]
    assert [claim.key for claim in checked] == ["a", "b", "c", "d", "e", "f", "g"]
    [worst] = [claim for claim in checked if claim.key == "e"]
    assert worst.verdict is FAILS
    assert "nfe 5: beta 46, beta_tilde 52" in worst.cases[0].numbers
    assert summary(checked).startswith("Of 7 claims of the paper, ")
    assert summary([]) == ""
    [claim] = [c for c in check(study(seeds("fid", SAMPLES["f"][1]))) if c.key == "f"]
    assert "lowest FID with DDPM" in claim.text  # in the place of the distance
    assert len({claim.key for claim in CLAIMS}) == len(CLAIMS)
