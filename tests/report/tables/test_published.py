"""Our figures beside the paper's: which rows meet, what agrees, and what is left blank."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import xarray as xr

from ocm_core.errors import OcmError
from ocm_core.report.image_page import page
from ocm_core.report.statistics.image_results import CellMean
from ocm_core.report.tables import cost, least_steps, published_comparison
from ocm_core.report.tables.published_comparison import Compared, compare
from ocm_core.report.tables.published_results import PublishedRow, load, load_bounds
from tests.report.synthetic_images import (
    BOTH,
    GUIDED,
    PAPER,
    PLAIN,
    SMALL,
    experiment,
    image_results,
    images,
    results,
)

RELATIVE_HEADS = ("npr_relative", "sn_relative", "ocm_relative", "ocm_tapered")

Key = tuple[str, str, int, float]


def compared(name: str = PLAIN, found: xr.Dataset | None = None, **changes: str) -> list[Compared]:
    methods = experiment(name).methods
    return compare(image_results(name, found, **changes), methods, load(PAPER, name))


def by_cell(found: list[Compared], measure: str) -> dict[Key, Compared]:
    return {
        (one.cell.sampler, one.cell.method, one.cell.steps, one.cell.guidance): one
        for one in found
        if one.measure == measure
    }


def test_an_experiment_has_the_rows_of_its_exact_name() -> None:
    assert len(load(PAPER, "celeba64")) == 66 + 36 + 18 + 7 + 6
    assert load(PAPER, "celeba64_smoke") == load(PAPER, "digits") == ()
    shared = [row.value for row in load(PAPER, "cifar10_ls") if row.table == "min_steps"]
    assert shared == [row.value for row in load(PAPER, "cifar10_cs") if row.table == "min_steps"]
    assert 16.0 in shared


def test_of_another_network_on_the_same_data_only_likelihoods_compare() -> None:
    rows = load_bounds(PAPER, "cifar10_ls")
    assert {row.metric for row in rows} == {"nll_bpd"} and len(rows) == 36
    with pytest.raises(OcmError, match=r"report.paper: .*results.csv has no experiment 'cifar100'"):
        load_bounds(PAPER, "cifar100")


def test_the_page_says_how_far_another_network_is_apart() -> None:
    given = replace(images(SMALL), space="efficientnet_lite0")
    [said, *_] = next(s for s in page(given).sections if s.id == "published").blocks
    one = by_cell(given.compared, "NLL, bits/dim")["ddpm", "beta_tilde", 100, 1.0]
    assert isinstance(said, str) and "of the network of cifar10_ls, on the same data" in said
    assert "At K = 100, where covariances matter least" in said
    assert f"{one.difference:+.2f} with beta_tilde" in said
    assert all(one.agrees is None for one in given.compared)


def test_a_foreign_file_is_refused_by_name(tmp_path: Path) -> None:
    file = tmp_path / "results.csv"
    file.write_text("table,experiment\nfid,cifar10_cs\n")
    with pytest.raises(OcmError, match=r"results\.csv: has the columns table, experiment"):
        load(file, PLAIN)


def test_rows_meet_the_cells_that_they_are_about() -> None:
    found = compared()
    fid, nll = by_cell(found, "FID"), by_cell(found, "NLL, bits/dim")
    assert _paper(fid["ddpm", "ocm", 10, 1.0]) == 14.32
    assert _paper(fid["ddim", "delta", 25, 1.0]) == 16.68
    assert _paper(fid["ddpm", "ocm_3", 10, 1.0]) == 14.18  # by its number of probes
    assert _paper(fid["ddpm", "rademacher_100", 5, 1.0]) == 38.88
    assert _paper(nll["ddpm", "beta_tilde", 10, 1.0]) == 75.96  # not the ablation's 74.95
    assert _paper(nll["ddpm", "beta_tilde", 5, 1.0]) == 203.29  # which only the ablation has
    assert nll["ddpm", "npr", 5, 1.0].paper is None  # the paper lacks it


def test_rows_with_guidance_meet_cells_with_guidance() -> None:
    recall = by_cell(compared(GUIDED), "recall, %")
    assert _paper(recall["ddpm", "ocm", 10, 3.0]) == 32.13
    assert _paper(recall["ddim", "ocm", 25, 1.5]) == 58.33
    assert recall["ddpm", "ocm", 10, 3.0].cell.mean == pytest.approx(100 * 0.6 / 1.1, rel=1e-2)


def _paper(one: Compared) -> float | None:
    return one.paper.value if one.paper else None


def test_the_paper_agrees_with_itself() -> None:
    found = results()
    for place, one in by_cell(compared(), "FID").items():
        if one.paper:
            sampler, method, steps, _ = place
            for label in {"ddpm": ["ddpm", "few", "probes"]}.get(sampler, [sampler]):
                at = {"sampler": label, "method": method, "steps": steps}
                known = found["fid"].loc[at].notnull()
                found["fid"].loc[at] = xr.where(known, one.paper.value, found["fid"].loc[at])
    again = by_cell(compared(found=found), "FID").values()
    gaps = [one.difference or 0.0 for one in again if one.paper]
    assert len(gaps) > 30 and max(map(abs, gaps)) < 1e-12
    assert [one.agrees for one in again if one.seeds] == [True] * 6  # ocm at K = 10, 25, 100


def _row(value: float | None, deviation: float | None = None) -> PublishedRow:
    return PublishedRow("fid", "ddpm", "ocm", 10, None, None, "fid", value, 0.005, deviation, "")


def _one(ours: float, paper: float | None, seeds: float, deviation: float | None) -> Compared:
    cell = CellMean("ddpm", "ocm", 10, 1.0, ours, 0.1, 0.1)
    return Compared("FID", cell, _row(paper) if paper else None, _row(seeds, deviation))


@pytest.mark.parametrize(
    ("ours", "paper", "seeds", "deviation", "agrees"),
    [
        (10.2, None, 10.0, 0.1, True),  # two deviations, and half of the last digit
        (10.204, None, 10.0, 0.1, True),
        (10.206, None, 10.0, 0.1, False),
        (10.5, 10.4, 10.0, 0.1, True),  # the paper prints two numbers: near either
        (10.2, None, 10.0, None, None),  # it gives no spread
        (float("nan"), None, 10.0, 0.1, False),
    ],
)
def test_agreement_is_within_the_papers_own_spread(
    ours: float, paper: float | None, seeds: float, deviation: float | None, agrees: bool | None
) -> None:
    assert _one(ours, paper, seeds, deviation).agrees is agrees


def test_distances_in_other_spaces_are_not_compared_and_the_page_says_so() -> None:
    found = compared(space="classifier")
    assert {one.measure for one in found} == {"NLL, bits/dim"}
    said = published_comparison.introduction(image_results(space="classifier"), found)
    assert "stand beside nothing here" in said and "a classifier" in said


def test_the_introduction_counts_what_agrees_and_says_where_nothing_can() -> None:
    found = compared()
    judged = [one for one in found if one.agrees is not None]
    assert f"{sum(map(bool, (one.agrees for one in judged)))} of {len(judged)} do." in (
        published_comparison.introduction(image_results(), found)
    )
    assert "none is marked" in published_comparison.introduction(
        image_results(GUIDED), compared(GUIDED)
    )


def test_the_table_leaves_blank_what_the_paper_lacks() -> None:
    found = compared()
    table = published_comparison.table(image_results(), found)
    row = next(r for r in table.rows if r[:4] == ("NLL, bits/dim", "ddpm", "npr", 5))
    assert row[6:] == (None, None, None, None, "")
    both = next(r for r in table.rows if r[:4] == ("FID", "ddpm", "ocm", 10))
    assert both[6:9] == (14.32, 14.46, 0.104)
    assert both[-1] == published_comparison.DIFFERS


def test_least_steps_are_the_first_k_that_reaches_the_target() -> None:
    table = least_steps.table(image_results(), load(PAPER, PLAIN))
    rows = {row[0]: row[1:] for row in table.rows}
    assert table.columns[1] == "K for FID ≤ 6" and table.columns[-1] == "paper: K for FID ≤ 6"
    assert rows["ocm_10"][:2] == (25, "DDPM (5.82)") and rows["ocm"][0] == 100
    assert rows["rademacher_100"][:2] == ("not by 10, and not sampled beyond", None)
    assert (rows["ocm"][-1], rows["delta"][-1], rows["beta or beta_tilde"][-1]) == (16, 30, 90)
    other = least_steps.table(image_results(), load(PAPER, "celeba64")).rows
    assert {row[0]: row[-1] for row in other}["beta or beta_tilde"] == "> 200"


def test_without_comparable_distances_the_target_is_the_best_fixed_variance() -> None:
    given = image_results(space="classifier")
    assert list(least_steps.targets(given)) == [pytest.approx(4.5, rel=1e-2)]
    rows = {row[0]: row[1:] for row in least_steps.table(given, load(PAPER, PLAIN)).rows}
    assert {"beta", "beta_tilde"} <= set(rows)
    assert rows["delta"][0] == 100 and rows["beta"][0] == "not by 100"


def test_the_papers_rows_stand_beside_heads_of_its_form_only() -> None:
    given, paper = images(BOTH), load(PAPER, PLAIN)
    found = compare(given.results, given.experiment.methods, paper)
    fid, nll = by_cell(found, "FID"), by_cell(found, "NLL, bits/dim")
    assert _paper(fid["ddpm", "ocm", 10, 1.0]) == 14.32
    relative = [one for key, one in [*fid.items(), *nll.items()] if key[1] in RELATIVE_HEADS]
    assert {one.cell.method for one in relative} == {*RELATIVE_HEADS}
    assert not [one for one in relative if one.paper or one.seeds]


def test_a_relative_head_that_is_called_as_in_the_paper_is_not_taken_for_it() -> None:
    given, paper = images(PLAIN), load(PAPER, PLAIN)
    form = {"baseline": "moments", "link": "positive", "unit": "root"}
    head = given.experiment.head.model_copy(update=form)
    changed = replace(given, experiment=given.experiment.model_copy(update={"head": head}))
    found = compare(changed.results, changed.experiment.methods, paper)
    heads = ("npr", "sn", "ocm", "ocm_3", "ocm_5", "ocm_10")
    assert not [one for one in found if one.cell.method in heads and (one.paper or one.seeds)]
    assert [one for one in found if one.cell.method == "analytic" and one.paper]
    steps = {row[0]: row[-1] for row in least_steps.table(changed.results, paper).rows}
    assert steps["ocm"] is None and steps["analytic"] is not None
    measured = cost.Cost(
        "batches of 64", 52_540_000, {"score": 50.0, "ocm": 51.0}, {"ocm": (1.02, 0.01)}
    )
    costs = cost.table(measured, {}, paper, changed.families).rows
    assert {row[0]: row[-2] for row in costs} == {"network alone": 45.13, "ocm": None}


def test_costs_are_listed_family_by_family() -> None:
    order = ["score", "beta", "ocm_relative", "npr_relative", "sn", "ocm"]
    measured = cost.Cost(
        "batches of 64", 1, dict.fromkeys(order, 50.0), dict.fromkeys(order[1:], (1.0, 0.01))
    )
    table = cost.table(measured, {}, (), images(BOTH).families)
    listed = ["network alone", "beta", "sn", "ocm", "npr_relative", "ocm_relative"]
    assert [row[0] for row in table.rows] == listed


def test_costs_stand_beside_the_papers_as_ratios() -> None:
    measured = cost.Cost(
        "batches of 64",
        52_540_000,
        {"score": 50.0, "ocm": 51.0, "beta": 50.0},
        {"ocm": (1.02, 0.01), "beta": (1.0, 0.02)},
    )
    table = cost.table(measured, {"ocm": 10_000}, load(PAPER, PLAIN))
    rows = {row[0]: row[1:] for row in table.rows}
    assert rows["network alone"] == (0, 52.54, 50.0, 1.0, None, 52.54, 45.13, 1.0)
    assert rows["ocm"][:5] == (10_000, 52.55, 51.0, 1.02, 0.01)
    assert rows["ocm"][5:] == (52.55, 45.23, pytest.approx(45.23 / 45.13))
    assert rows["beta"][-3:] == (None, None, None)
    alone = cost.table(measured, {}, ())
    assert len(alone.columns) == 6 and all(len(row) == 6 for row in alone.rows)
