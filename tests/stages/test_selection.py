"""Which heads are chosen among those that training has kept."""

from __future__ import annotations

from ocm_core.params.resolved import load
from ocm_core.stages.selection import Candidate, best, candidates


def test_every_method_has_a_candidate_at_every_kept_iteration() -> None:
    found = candidates(load("cifar10_ls_smoke"))
    assert [c.iteration for c in found if c.label == "ocm"] == [10, 20]


def test_each_method_has_its_own_best_iteration() -> None:
    fid = {
        Candidate("ocm", 10): 7.0,
        Candidate("ocm", 20): 5.0,
        Candidate("ocm", 30): 6.0,
        Candidate("sn", 10): 4.0,
        Candidate("sn", 20): 9.0,
    }
    assert best(fid) == {"ocm": 20, "sn": 10}


def test_of_equals_the_earliest_is_chosen() -> None:
    fid = {Candidate("ocm", 20): 5.0, Candidate("ocm", 10): 5.0, Candidate("ocm", 30): 6.0}
    assert best(fid) == {"ocm": 10}
