"""What the documents promise of few steps, held to the recorded numbers."""

from __future__ import annotations

from pathlib import Path

import pytest

from ocm_core.compare.recorded import recorded
from ocm_core.compare.revisions import WorkingTree

ROOT = Path(__file__).parents[1]
MOST_BITS = {"K5": 2.50, "K10": 2.10, "K25": 2.02}
EVEN, OPTIMAL = "ddpm", "ddpm_optimal"


@pytest.mark.parametrize("name", ["digits", "digits_seed2"])
def test_few_steps_along_the_best_chain_are_enough(name: str) -> None:
    numbers = recorded(WorkingTree(ROOT), name).numbers
    found = {k: numbers["nll_bpd", OPTIMAL, "ocm_relative", k] for k in MOST_BITS}
    assert {k: bits for k, bits in found.items() if bits > MOST_BITS[k]} == {}


@pytest.mark.parametrize(
    "name", ["digits", "digits_seed2", "digits_cosine", "toy_mog9", "toy_mog40"]
)
def test_no_bound_is_better_on_the_even_chain(name: str) -> None:
    """Of any method and K, by more than one standard error."""
    experiment = recorded(WorkingTree(ROOT), name)
    pairs = {
        key: (key[0], EVEN, *key[2:])
        for key in experiment.numbers
        if key[0].startswith("nll_bpd") and not key[0].endswith("_se") and key[1] == OPTIMAL
    }
    assert len(pairs) >= 40
    worse = [
        ".".join(key)
        for key, even in pairs.items()
        if even in experiment.numbers
        and experiment.numbers[key] > experiment.numbers[even] + experiment.error(key)
    ]
    assert worse == []
