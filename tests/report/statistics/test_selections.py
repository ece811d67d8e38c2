"""Which steps summaries talk about."""

from __future__ import annotations

from ocm_core.report.statistics.selections import headline_steps


def test_headline_steps_are_five_and_ten_or_the_fewest() -> None:
    assert headline_steps([2, 5, 10, 20]) == [5, 10]
    assert headline_steps([20, 3]) == [3]
