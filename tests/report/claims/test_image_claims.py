"""Each claim about images can hold, can fail, and can drown in noise; the summary says which."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import xarray as xr

from ocm_core.report.claims.image_claims import MUCH, claims
from ocm_core.report.figures.frontier import frontier_figure
from ocm_core.report.image_page import page
from ocm_core.report.page.verdicts import Claim, Verdict
from tests.report.synthetic_images import (
    BOTH,
    GUIDED,
    PLAIN,
    RELATIVE,
    image_results,
    images,
    results,
)

UNGUIDED_KEYS = "abcdefg"
HOLDS = dict.fromkeys(UNGUIDED_KEYS, Verdict.HOLDS)


def checked(found: xr.Dataset, name: str = PLAIN) -> dict[str, Claim]:
    return {claim.key: claim for claim in claims(image_results(name, found))}


def verdicts(found: xr.Dataset, name: str = PLAIN) -> dict[str, Verdict]:
    return {key: claim.verdict for key, claim in checked(found, name).items()}


def changed(name: str, value: float | xr.DataArray, **at: object) -> xr.Dataset:
    found = results()
    found[name].loc[at] = value
    return found


def bound(method: str, steps: int) -> float:
    return float(results()["nll"].isel(chain=0).sel({"method": method, "steps": steps}).item())


def test_all_hold_where_the_numbers_say_so() -> None:
    assert verdicts(results()) == HOLDS
    assert verdicts(results(GUIDED), GUIDED) == dict.fromkeys("efh", Verdict.HOLDS)


@pytest.mark.parametrize(
    ("key", "name", "method", "steps", "value"),
    [
        ("a", "nll", "npr", 25, 1.0),
        ("b", "nll", "analytic", 5, 1.0),
        ("b", "nll", "beta", 10, 1.0),
        ("c", "nll", "sn", 10, bound("ocm", 10) + 0.9 * MUCH),
        ("c", "nll", "beta_tilde", 5, bound("ocm", 5)),
        ("d", "nll", "analytic", 100, 99.0),
        ("d", "nll", "ocm", 10, 99.0),
        ("e", "fid", "beta", 10, 1.0),
        ("f", "fid", "sn", 100, 0.1),
        ("g", "recall", "beta_tilde", 5, 0.9),
    ],
)
def test_one_number_refutes(key: str, name: str, method: str, steps: int, value: float) -> None:
    found = changed(name, value, method=method, steps=steps)
    assert verdicts(found)[key] is Verdict.FAILS


def test_a_bound_within_one_standard_error_of_the_lowest_still_holds() -> None:
    """Of the difference: 0.01 √2."""
    for excess, verdict in ((0.013, Verdict.HOLDS), (0.016, Verdict.FAILS)):
        found = changed("nll", bound("ocm", 25) - excess, method="npr", steps=25)
        assert verdicts(found)["a"] is verdict


def test_a_distance_within_one_standard_error_of_the_lowest_still_holds() -> None:
    ocm = results()["fid"].sel({"method": "ocm", "sampler": "ddpm", "steps": 100})
    wobble = xr.DataArray([0.3, -0.3, 0.0], dims="seed")
    error = float(wobble.std(ddof=1)) / np.sqrt(3)
    for excess, verdict in ((0.99 * error, Verdict.HOLDS), (1.01 * error, Verdict.FAILS)):
        value = (ocm - excess + wobble).values
        place = {"method": "sn", "sampler": "ddpm", "steps": 100}
        assert verdicts(changed("fid", value, **place))["f"] is verdict


def test_a_difference_within_two_standard_errors_is_noise() -> None:
    found = changed("nll", bound("ocm", 5) + 0.02, method="beta", steps=5)
    assert verdicts(found)["b"] is Verdict.NOISE
    rise = changed("nll", bound("npr", 25) + 0.02, method="npr", steps=100)
    assert verdicts(rise)["d"] is Verdict.NOISE


def test_heads_with_more_probes_are_no_rivals_of_ocm() -> None:
    found = changed("fid", 0.01, method="ocm_10")
    found["nll"].loc[{"method": "ocm_10"}] = 0.01
    assert verdicts(found)["a"] is verdicts(found)["f"] is Verdict.HOLDS


def test_a_diverged_ocm_refutes_what_is_said_of_it() -> None:
    found = changed("fid", np.nan, method="ocm", sampler="ddpm", steps=25, seed=1)
    assert verdicts(found)["f"] is Verdict.FAILS


def test_one_seed_decides_nothing_about_samples() -> None:
    found = verdicts(results().isel(seed=[0]))
    assert found == HOLDS | dict.fromkeys("efg", Verdict.UNDECIDED)


@pytest.mark.parametrize(("sampler", "rival"), [("ddpm", "beta_tilde"), ("ddim", "delta")])
def test_recall_must_be_higher_at_every_guidance(sampler: str, rival: str) -> None:
    found = results(GUIDED)
    found["recall"].loc[{"sampler": sampler, "method": rival, "guidance": 3.0}] = 0.9
    claim = checked(found, GUIDED)["h"]
    assert claim.verdict is Verdict.FAILS
    failing = [case.where for case in claim.cases if case.verdict is Verdict.FAILS]
    assert failing == [f"{sampler.upper()}, guidance 3"]
    assert len(claim.cases) == 2 * results(GUIDED).sizes["guidance"]


def test_claims_about_absent_measures_and_methods_are_left_out() -> None:
    assert set(verdicts(results().drop_vars(["nll", "nll_se", "nll_terms"]))) == set("efg")
    assert set(verdicts(results()[["nll", "nll_se"]])) == set("abcd")
    assert set(verdicts(results().drop_sel(method="ocm"))) == set("de")


def test_the_distance_is_called_what_it_is() -> None:
    texts = [claim.text for claim in claims(image_results(space="classifier"))]
    assert not any("FID" in text for text in texts)
    assert any("Fréchet distance" in text for text in texts)


def findings(name: str = PLAIN, found: xr.Dataset | None = None) -> dict[str, str]:
    """What each section of the page says while it is folded."""
    given = images(name) if found is None else replace(images(name), dataset=found)
    return {section.id: section.finding for section in page(given).sections}


def test_findings_are_made_of_the_numbers() -> None:
    told = findings()
    assert (
        "in the features of Inception v3 and with 50000 samples, the lowest FID" in told["quality"]
    )
    assert "at K = 5 by ocm (22) with DDPM; at K = 10 by" in told["quality"]
    assert told["likelihood"] == (
        "The lowest NLL, in bits per dimension, is that of ocm_10 (6.85) at K = 5, ocm_10 (4.91) "
        "at K = 10 and ocm_10 (3.16, 2 more within noise) at K = 100."
    )
    assert told["claims"].startswith("Of the paper's claims, these hold:")
    assert "do not hold" not in told["claims"]
    assert "ocm gets there with K = " in told["tradeoffs"]
    assert all(told.values())


def test_the_frontier_says_where_rivals_win() -> None:
    """Covariances are compared where there are several."""
    frontier = frontier_figure(image_results(BOTH), images(BOTH).rivals)
    assert frontier is not None and "By FID, ours is ahead at 5" in frontier.caption
    told = findings(BOTH)["quality"]
    assert "UNIPC" not in told and "QUALITY" not in told and "with DDPM" in told


def test_findings_say_plainly_what_does_not_hold() -> None:
    told = findings(found=changed("recall", 0.01, method="ocm"))["claims"]
    assert told.endswith("these do not hold: ocm's higher recall than beta_tilde's at few steps.")


def test_with_guidance_the_least_and_the_steps_saved_are_told() -> None:
    told = findings(GUIDED)
    best = "at K = 10 by ocm (3) with DDPM, guidance 4 and ocm (3) with DDIM, guidance 4"
    assert best in told["quality"]
    assert told["tradeoffs"] == (
        "The best fixed variance is delta with K = 100 (DDIM, guidance 1.5, 3); ocm gets there "
        "with K = 10 (DDPM, guidance 4, 3)."
    )


def test_heads_of_another_form_do_not_take_part_in_claims_about_the_papers() -> None:
    """They are lower than every published head by far."""
    found = checked(results(BOTH), BOTH)
    assert {key: claim.verdict for key, claim in found.items()} == HOLDS
    told = [text for claim in found.values() for text in (claim.text, *map(repr, claim.cases))]
    assert not any("relative" in text or "tapered" in text for text in told)
    assert "ocm" in repr(found["d"].cases) and "sn" in found["c"].text


def test_where_the_papers_form_was_not_measured_the_claim_names_the_other() -> None:
    found = results(BOTH)
    found["fid"].loc[{"method": ["npr", "sn", "ocm"]}] = np.nan
    by_key = checked(found, BOTH)
    assert by_key["f"].short == "ocm_relative's best FID with DDPM"
    assert "ocm_relative 1" in by_key["f"].cases[0].numbers
    assert by_key["a"].short == "ocm's lowest NLL from K = 25 on"


def test_an_experiment_without_the_papers_form_is_told_by_its_own_labels() -> None:
    given = image_results(RELATIVE)
    found = {claim.key: claim for claim in claims(given)}
    assert "ocm_relative has a higher recall than beta_tilde" in found["h"].text
    assert {claim.verdict for claim in found.values()} == {Verdict.HOLDS}
    told = findings(RELATIVE)
    assert "; ocm_relative gets there with K = " in told["tradeoffs"]
    assert "ocm_relative's higher recall" in told["claims"] and "ocm's" not in told["claims"]
