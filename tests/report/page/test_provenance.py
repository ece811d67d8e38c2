"""What a page tells of its making."""

from __future__ import annotations

import pytest

from ocm_core.params.choices import choices
from ocm_core.report.page.provenance import REMAKE, provenance
from tests.report.synthetic_images import BOTH, PLAIN, RELATIVE, experiment

PUBLISHED = "baseline none, link identity, unit own"
MOMENTS = "baseline moments, link positive, unit root"


@pytest.mark.parametrize(
    ("name", "heads"),
    [
        (PLAIN, f"npr, sn, ocm, ocm_3, ocm_5, ocm_10: {PUBLISHED}"),
        (RELATIVE, f"ocm_relative: {MOMENTS}"),
        (
            BOTH,
            f"iddpm, npr, sn, ocm: {PUBLISHED}; "
            f"npr_relative, sn_relative, ocm_relative: {MOMENTS}; "
            "ocm_tapered: baseline target, link tapered, unit one",
        ),
    ],
)
def test_every_head_is_told_with_its_form(name: str, heads: str) -> None:
    fingerprint = {"inputs": {"heads/published": "a" * 64}, "parameters": "", "sources": ""}
    facts = provenance(experiment(name), "commit", fingerprint, {}, [], ())
    assert facts.digests["Heads"] == heads
    assert facts.digests["Checkpoint heads/published"] == "a" * 16


def test_five_lines_answer_what_a_reader_asks() -> None:
    fingerprint = {"inputs": {}, "parameters": "", "sources": ""}
    machines = {"x86_64, CPU"}
    facts = provenance(experiment(BOTH), "abc", fingerprint, {}, ["data: digits"], machines)
    assert len(facts.answers) == 5
    told = facts.answers
    assert told[REMAKE] == "snakemake --cores 2 reports/digits.html"
    assert told["Commit"].startswith("abc: the last that changed") and "HEAD" in told["Commit"]
    assert told["Not the defaults"].startswith("data: digits (params/experiment/digits.yaml")
    assert told["Machine"] == "x86_64, CPU"


def test_choices_are_those_of_the_overlay() -> None:
    assert choices("digits")[0] == "data: digits" and "head: complex" in choices("digits")
    again = choices("digits_seed2")
    assert again[0] == "as digits" and "train.score.seed = 201" in again
    assert not [choice for choice in again if "title" in choice]
