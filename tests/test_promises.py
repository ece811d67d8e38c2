"""What the documents promise of few steps, held to the recorded numbers."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ocm_core.compare.recorded import recorded
from ocm_core.compare.revisions import WorkingTree
from ocm_core.overview.kept import is_current, read_kept

ROOT = Path(__file__).parents[1]
MOST_BITS = {"K5": 2.50, "K10": 2.10, "K25": 2.02}
OPTIMAL = "ddpm_optimal"
IN_PAIRS = re.compile(
    r"in pairs: of (\d+) bounds [^.<]* a standard error of [^.<]*, (\d+) by more\."
)


@pytest.mark.parametrize("name", ["digits", "digits_seed2", "digits_seed3"])
def test_few_steps_along_the_best_chain_are_enough(name: str) -> None:
    numbers = recorded(WorkingTree(ROOT), name).numbers
    found = {k: numbers["nll_bpd", OPTIMAL, "ocm_relative", k] for k in MOST_BITS}
    assert {k: bits for k, bits in found.items() if bits > MOST_BITS[k]} == {}


@pytest.mark.parametrize(
    ("name", "scores"), {"digits": 1, "digits_cosine": 1, "toy_mog9": 2, "toy_mog40": 2}.items()
)
def test_no_bound_is_better_on_the_even_chain(name: str, scores: int) -> None:
    """Of any method, K and score, by more than one standard error of the difference in pairs."""
    page = read_kept(ROOT, name)
    assert is_current(ROOT, name, page)
    found = IN_PAIRS.findall(page.html)
    assert len(found) == scores
    for bounds, worse in found:
        assert int(bounds) >= 40
        assert worse == "0"
