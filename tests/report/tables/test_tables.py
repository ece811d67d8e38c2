"""Tables of methods, of probes in training, and of clamped variances."""

from __future__ import annotations

import pytest

from ocm_core.report.statistics.head_families import head_families
from ocm_core.report.tables import probes
from ocm_core.report.tables.glossary import glossary
from ocm_core.report.tables.methods import clamped_shares, method_table
from tests.report.synthetic_images import (
    BOTH,
    GUIDED,
    PLAIN,
    RELATIVE,
    RIVALS,
    STEPS,
    experiment,
    image_results,
    images,
)


def probe_counts(name: str) -> dict[str, int]:
    chosen = experiment(name)
    return probes.probe_counts(chosen.methods, head_families(chosen))


def test_more_probes_in_training_are_tabled_by_their_number() -> None:
    counts = probe_counts(PLAIN)
    assert counts == {"ocm": 1, "ocm_3": 3, "ocm_5": 5, "ocm_10": 10}
    table = probes.table(image_results(), counts)
    assert [row[0] for row in table.rows] == [m for m in (1, 3, 5, 10) for _ in STEPS]
    row = next(row for row in table.rows if row[:3] == (10, "ocm_10", 25))
    assert row[3] == pytest.approx(0.97 * 6, rel=1e-3) and row[5] == pytest.approx(3.746, rel=1e-3)
    assert probe_counts(GUIDED) == {}


def test_clamped_shares_are_tabled_for_those_that_were() -> None:
    table = clamped_shares(image_results(GUIDED).dataset["clamped"])
    assert table is None
    plain = clamped_shares(image_results().dataset["clamped"])
    assert plain is not None
    assert plain.columns == ("sampler", "method", *(f"K = {k}" for k in STEPS))
    assert [row[:2] for row in plain.rows] == [("ddpm", "sn"), ("ddim", "sn")]
    assert plain.rows[0][3:] == (1.0, 1.0, 1.0)
    longer = image_results().dataset["clamped"].reindex(steps=[*STEPS, 1000])  # K of the bound only
    assert repr(clamped_shares(longer)) == repr(plain)
    guided = image_results(GUIDED).dataset["clamped"]
    touched = clamped_shares(guided.where(guided.isnull(), 0.5))
    assert touched is not None and touched.columns[:3] == ("sampler", "guidance", "method")


def test_heads_of_other_forms_are_no_ablation_of_probes() -> None:
    assert probe_counts(BOTH) == {}  # ocm, ocm_relative and ocm_tapered: one probe each
    assert [*probe_counts("digits_probes").values()] == [1, 3, 5, 10]


def test_methods_are_explained_family_by_family_with_what_they_are_relative_to() -> None:
    found = images(BOTH)
    entries = {entry.label: entry for entry in glossary(found.experiment, found.families).entries}
    heads = [label for label in entries if label.split("_")[0] in ("npr", "sn", "ocm")]
    assert heads == [
        *("npr", "sn", "ocm"),
        *("npr_relative", "sn_relative", "ocm_relative"),
        "ocm_tapered",
    ]
    plain = "a head fitted to random probes of the score's Jacobian"
    assert entries["ocm"].text == plain
    relative = f"{plain}; relative to the table of analytic, and positive"
    assert entries["ocm_relative"].text == relative
    tapered = "relative to the mean of its target, positive, tapered at small t"
    assert entries["ocm_tapered"].text == f"{plain}; {tapered}"
    table = method_table(found.experiment, {"ocm": 7}, found.families)
    assert ("ocm", 7, "its head") in table.rows


@pytest.mark.parametrize("name", [PLAIN, GUIDED, BOTH, RELATIVE, RIVALS])
def test_every_method_has_a_line_and_an_equation(name: str) -> None:
    found = images(name)
    entries = {entry.label: entry for entry in glossary(found.experiment, found.families).entries}
    for label, method in found.experiment.methods.items():
        assert entries[label].text
        assert "=" in entries[label].equation or method.kind == "none"
    assert {label for label, *_ in found.chain_samples} <= {*entries}
