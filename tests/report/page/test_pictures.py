"""How many images fit on a sheet, and how they are made smaller."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ocm_core.report.page import pictures


@given(
    st.integers(1, 100), st.integers(1, 128), st.integers(1, 300), st.integers(10_000, 4_000_000)
)
def test_what_fits_is_within_the_budget(count: int, side: int, sheets: int, budget: int) -> None:
    shown, reduction = pictures.fit((count, side, side, 3), sheets, budget, fewest=4)
    assert 1 <= shown <= count
    size = shown * sheets * side * side * 3 / reduction**2
    assert size <= budget or (shown, reduction) == (1, 8)
    if reduction > 1 and shown < count:
        whole, _ = pictures.fit((shown, side, side, 3), sheets, budget * reduction**2, fewest=4)
        assert whole == shown


def test_shrinking_takes_means_of_blocks() -> None:
    x = np.arange(2 * 5 * 4, dtype=float).reshape(2, 5, 4)
    small = pictures.shrink(x, 2)
    assert small.shape == (2, 2, 2)
    assert small[1, 0, 1] == x[1, :2, 2:].mean()
    assert pictures.shrink(x.astype(np.uint8), 2).dtype == np.uint8
