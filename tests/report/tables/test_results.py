"""Wide tables: methods by numbers of steps, marked, with the paper's own numbers beneath ours."""

from __future__ import annotations

from dataclasses import replace

from ocm_core.report.image_page import page
from ocm_core.report.page.document import Headline
from ocm_core.report.page.result_table import ResultGroup, ResultTable
from ocm_core.report.tables.results import ALONE, bound_table, sample_table
from tests.report.synthetic_images import BOTH, PLAIN, RIVALS, STEPS, images


def groups(table: ResultTable | None) -> dict[str, ResultGroup]:
    assert table is not None
    return {group.title: group for group in table.groups}


def numbers(group: ResultGroup, label: str) -> list[str]:
    (row,) = [row for row in group.rows if row.label == label]
    return [cell.number for cell in row.cells]


def test_the_best_is_bold_and_the_second_underlined_in_every_group() -> None:
    found = groups(sample_table(images().results, "fid", images().compared))
    ranks = {row.label: [cell.rank for cell in row.cells] for row in found["DDPM"].rows}
    assert ranks["ocm"] == ["best", "", "", ""]  # from K = 10 on, heads of more probes are better
    assert ranks["ocm_10"][1:] == ["best"] * 3 and ranks["ocm_5"][1:] == ["second"] * 3
    assert {*found} == {"DDPM", "DDIM"}


def test_the_papers_numbers_stand_beneath_ours_as_printed() -> None:
    found = groups(sample_table(images().results, "fid", images().compared))
    assert numbers(found["DDPM"], "ocm in the paper")[1] == "14.3"
    paper = [row for row in found["DDPM"].rows if row.published]
    assert paper and all(cell.rank == "" for row in paper for cell in row.cells)
    bounds = groups(bound_table(images().bounds, images().bound_chains, images().compared))
    assert any(row.published for row in bounds["even chain"].rows)
    assert not any(row.published for row in bounds["optimal chain"].rows)


def test_heads_of_another_form_and_other_features_have_no_numbers_of_the_paper() -> None:
    given = replace(images(BOTH), published=images(PLAIN).published)
    found = groups(sample_table(given.results, "fid", given.compared))
    labels = [row.label for group in found.values() for row in group.rows]
    assert "ocm in the paper" in labels and "ocm_relative in the paper" not in labels
    elsewhere = replace(given, space="classifier")
    table = sample_table(elsewhere.results, "fid", elsewhere.compared)
    assert not [r for group in groups(table).values() for r in group.rows if r.published]


def test_samplers_with_one_method_are_ranked_together() -> None:
    found = groups(sample_table(images(RIVALS).results, "fid"))
    labels = [row.label for row in found[ALONE].rows]
    assert {"unipc, none", "quality, delta"} <= {*labels}
    (unipc,) = [row for row in found[ALONE].rows if row.label == "unipc, none"]
    assert {cell.rank for cell in unipc.cells} & {"best", "second"}


def test_the_first_table_sets_ours_against_the_published_a_fixed_one_and_solvers() -> None:
    (headline,) = [b for b in page(images(RIVALS)).glance if isinstance(b, Headline)]
    found = groups(headline.table)
    assert [*found] == ["FID ↓", "recall ↑", "bits/dim ↓, even chain", "bits/dim ↓, optimal chain"]
    rows = {row.label: row.cells for row in found["FID ↓"].rows}
    assert [*rows] == ["best of ours", "ddpm, ocm", "ddpm, beta_tilde", "best solver"]
    assert rows["best of ours"][0].note and rows["best solver"][0].note == "unipc"
    assert headline.table.columns == tuple(f"K = {k}" for k in STEPS)
    bits = {row.label: row.cells for row in found["bits/dim ↓, even chain"].rows}
    assert [*bits] == ["best of ours", "ocm", "beta_tilde"]
    assert bits["best of ours"][0].note == "ocm_tapered"
    assert len(headline.claims) == 7
