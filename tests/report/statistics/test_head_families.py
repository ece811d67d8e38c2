"""Which heads compare with one another, and which stand for the paper's."""

from __future__ import annotations

import pytest

from ocm_core.report.statistics.head_families import (
    HeadFamily,
    claimed_family,
    comparable,
    families_together,
    head_families,
    relative_heads,
)
from tests.report.synthetic_images import BOTH, GUIDED, PLAIN, RELATIVE, experiment, results

OF_BOTH = head_families(experiment(BOTH))


@pytest.mark.parametrize(
    ("name", "labels"),
    [
        (PLAIN, [("npr", "sn", "ocm", "ocm_3", "ocm_5", "ocm_10")]),
        (GUIDED, [("ocm",)]),
        (RELATIVE, [("ocm_relative",)]),
        (
            BOTH,
            [
                ("npr", "sn", "ocm"),
                ("npr_relative", "sn_relative", "ocm_relative"),
                ("ocm_tapered",),
            ],
        ),
    ],
)
def test_heads_of_one_form_are_a_family_and_the_papers_form_comes_first(
    name: str, labels: list[tuple[str, ...]]
) -> None:
    families = head_families(experiment(name))
    assert [tuple(family.kinds) for family in families] == labels
    published = [name != RELATIVE] + [False] * (len(labels) - 1)
    assert [family.published for family in families] == published


def test_a_family_has_one_label_for_each_kind() -> None:
    (family,) = head_families(experiment(PLAIN))
    assert family.names == {"npr": "npr", "sn": "sn", "ocm": "ocm"}  # not ocm_3
    _, relative, tapered = OF_BOTH
    assert relative.label("sn") == "sn_relative"
    assert tapered.names == {"npr": "npr", "sn": "sn", "ocm": "ocm_tapered"}


@pytest.mark.parametrize(
    ("measured", "chosen"),
    [
        (["beta", "ocm", "ocm_relative"], "ocm"),
        (["beta", "npr", "sn", "ocm_relative"], "ocm_relative"),  # the claims are about OCM
        (["ocm_tapered", "npr_relative"], "ocm_tapered"),
        (["npr_relative"], "ocm_relative"),  # its family, of which OCM was not measured
        (["beta"], "ocm"),
    ],
)
def test_claims_are_about_the_first_family_whose_ocm_was_measured(
    measured: list[str], chosen: str
) -> None:
    assert claimed_family(OF_BOTH, measured).label("ocm") == chosen


def test_other_families_are_left_out_of_a_comparison() -> None:
    published, relative, _ = OF_BOTH
    labels = {
        family.label("ocm"): set(comparable(results(BOTH), OF_BOTH, family)["method"].values)
        for family in (published, relative)
    }
    everything = set(results(BOTH)["method"].values)
    assert everything - labels["ocm"] == set(relative_heads(OF_BOTH))
    assert everything - labels["ocm_relative"] == {"npr", "sn", "ocm", "ocm_tapered"}
    assert "iddpm" in labels["ocm"] & labels["ocm_relative"]  # a head, but of one form only


def test_families_stand_together_where_the_first_head_was() -> None:
    families = (
        HeadFamily(True, {"ocm": "ocm", "ocm_3": "ocm"}),
        HeadFamily(False, {"ocm_relative": "ocm"}),
    )
    labels = ["beta", "ocm_relative", "delta", "ocm", "exact_diag", "ocm_3"]
    together = ["beta", "ocm", "ocm_3", "ocm_relative", "delta", "exact_diag"]
    assert families_together(labels, families) == together
    assert families_together(["beta", "delta"], families) == ["beta", "delta"]
