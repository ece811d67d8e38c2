"""What a page tells of its making."""

from __future__ import annotations

import pytest

from ocm_core.report.page.provenance import provenance
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
    facts = provenance(experiment(name), "commit", fingerprint, {})
    assert facts["Heads"] == heads
    assert facts["Checkpoint heads/published"] == "a" * 16
