"""Each claim can hold, can fail, and can drown in noise."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr

from ocm_core.report.claims.toy_claims import claims
from ocm_core.report.page.verdicts import Verdict
from ocm_core.report.statistics.head_families import HeadFamily
from tests.report.synthetic_toy import (
    ERRORS,
    JITTER,
    LEVELS,
    NPR,
    OCM,
    PUBLISHED,
    RELATIVE,
    SN,
    as_published,
    of_both_families,
    results,
)


def verdicts(found: xr.Dataset, *families: HeadFamily) -> dict[str, Verdict]:
    return {claim.key: claim.verdict for claim in claims(found, families or (RELATIVE,))}


def changed(name: str, value: float, **at: object) -> xr.Dataset:
    found = results()
    found[name].loc[at] = value
    return found


def test_all_hold_where_the_numbers_say_so() -> None:
    assert verdicts(results()) == dict.fromkeys("abcdef", Verdict.HOLDS)


@pytest.mark.parametrize(("key", "score"), [("a", "true"), ("b", "learned")])
@pytest.mark.parametrize("rival", [NPR, SN])
def test_one_timestep_refutes_lower_error(key: str, score: str, rival: str) -> None:
    found = changed("covariance_error", 1e-9, score=score, method=rival, t=100)
    expected = dict.fromkeys("abcdef", Verdict.HOLDS) | {key: Verdict.FAILS}
    assert verdicts(found) == expected


def test_an_error_that_is_not_lower_within_its_bars_is_noise() -> None:
    ocm = ERRORS[OCM] * 1e-3
    found = changed("covariance_error", 0.99 * ocm, score="true", method=SN, t=1)
    assert verdicts(found)["a"] is Verdict.NOISE


@pytest.mark.parametrize(
    ("key", "method", "level"),
    [
        ("c", "exact_diag", 0.15),
        ("d", "beta_tilde", 0.1),
        ("e", "exact_full", 0.3),
        ("f", "beta", 0.1),
    ],
)
def test_the_means_can_refute(key: str, method: str, level: float) -> None:
    assert verdicts(results(LEVELS | {method: level}))[key] is Verdict.FAILS


@pytest.mark.parametrize(("key", "method"), [("d", "beta_tilde"), ("e", "exact_full")])
@pytest.mark.parametrize("sign", [-1, 1])
def test_a_difference_within_two_standard_errors_is_noise(key: str, method: str, sign: int) -> None:
    other = {"beta_tilde": OCM, "exact_full": "exact_diag"}[method]
    level = LEVELS[other] + 0.2 * sign * JITTER
    assert verdicts(results(LEVELS | {method: level}))[key] is Verdict.NOISE


def test_one_step_count_beyond_sampling_noise_refutes_equality() -> None:
    once = changed("mmd", LEVELS[OCM] * 2, method="exact_diag", steps=5, sampler="ddpm")
    assert verdicts(once)["c"] is Verdict.FAILS


@pytest.mark.parametrize("steps", [2, 3])
def test_samples_that_are_no_numbers_are_named(steps: int) -> None:
    found = changed("mmd", np.nan, sampler="ddpm", method=SN, steps=steps, seed=4)
    claim = next(claim for claim in claims(found, (RELATIVE,)) if claim.key == "f")
    assert claim.verdict is Verdict.FAILS
    assert any(f"K = {steps}: not finite: {SN}" in case.numbers for case in claim.cases)


def test_a_diverged_ocm_refutes_what_is_said_of_it() -> None:
    found = changed("mmd", np.nan, sampler="ddim", method=OCM, steps=5, seed=0)
    found_verdicts = verdicts(found)
    assert (found_verdicts["c"], found_verdicts["d"]) == (Verdict.FAILS, Verdict.FAILS)


def test_one_seed_decides_nothing_that_needs_error_bars() -> None:
    found = verdicts(results(seeds=1))
    assert (found["c"], found["d"], found["e"]) == (Verdict.UNDECIDED,) * 3


def test_claims_about_absent_methods_and_scores_are_left_out() -> None:
    without = results().drop_sel(method=["exact_diag", "exact_full"]).sel(score=["learned"])
    assert set(verdicts(without)) == {"b", "d", "f"}
    assert claims(results()[["mmd_floor"]], (RELATIVE,)) == []


def test_claims_name_the_heads_that_were_compared() -> None:
    relative = claims(results(), (RELATIVE,))[0]
    assert relative.text == (
        "With the true score, ocm_relative has a lower covariance error than npr_relative and "
        "sn_relative at every t."
    )
    assert relative.short == "ocm_relative's lower covariance error with the true score"
    assert [case.where for case in relative.cases] == [f"against {NPR}", f"against {SN}"]
    published = claims(as_published(results()), (PUBLISHED,))[0]
    assert "ocm has a lower covariance error than npr and sn" in published.text
    assert [case.where for case in published.cases] == ["against npr", "against sn"]


def test_where_both_families_are_measured_claims_are_about_the_papers_form() -> None:
    better = {name: value / 10 for name, value in LEVELS.items()}
    found = of_both_families(results(), results(better, better))
    checked = claims(found, (PUBLISHED, RELATIVE))
    assert {claim.key: claim.verdict for claim in checked} == dict.fromkeys("abcdef", Verdict.HOLDS)
    told = [text for claim in checked for text in (claim.text, *map(repr, claim.cases))]
    assert not any("relative" in text for text in told)
    worse = of_both_families(results(LEVELS | {OCM: 0.9}), results())
    assert verdicts(worse, PUBLISHED, RELATIVE)["d"] is Verdict.FAILS


def test_a_measure_without_the_papers_form_is_claimed_of_the_other() -> None:
    found = of_both_families(results(), results())
    found["mmd"].loc[{"method": list(PUBLISHED.kinds)}] = np.nan
    by_key = {claim.key: claim for claim in claims(found, (PUBLISHED, RELATIVE))}
    assert "ocm has" in by_key["a"].text and "ocm_relative samples" in by_key["c"].text
