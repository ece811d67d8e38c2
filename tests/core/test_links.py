"""How a raw output is read relative to a baseline c̄_t."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ocm_core.covariance.learned import LINKS

BASELINES = st.floats(1e-6, 1.0)
OUTPUTS = st.floats(-20.0, 20.0)


def c(link: str, raw: float, baseline: float) -> float:
    return float(LINKS[link](*(torch.tensor(x, dtype=torch.float64) for x in (raw, baseline))))


@pytest.mark.parametrize("link", LINKS)
@given(baseline=BASELINES)
def test_nothing_said_is_the_baseline(link: str, baseline: float) -> None:
    assert c(link, 0.0, baseline) == pytest.approx(baseline, rel=1e-12)


@pytest.mark.parametrize("link", LINKS)
@given(raw=OUTPUTS, more=st.floats(1e-3, 1.0), baseline=st.floats(1e-6, 0.999))
def test_more_is_more(link: str, raw: float, more: float, baseline: float) -> None:
    assert c(link, raw + more, baseline) > c(link, raw, baseline)


@pytest.mark.parametrize("link", ["positive", "tapered"])
@given(raw=OUTPUTS, baseline=BASELINES)
def test_positive_links_are_positive(link: str, raw: float, baseline: float) -> None:
    assert c(link, raw, baseline) > 0.0


@given(raw=OUTPUTS, baseline=BASELINES)
def test_a_tapered_head_stays_closer_to_its_baseline(raw: float, baseline: float) -> None:
    farther = abs(c("positive", raw, baseline) - baseline)
    assert abs(c("tapered", raw, baseline) - baseline) <= farther + 1e-12


@given(raw=OUTPUTS, above=st.floats(0.0, 0.5))
def test_a_tapered_head_cannot_leave_a_baseline_of_one(raw: float, above: float) -> None:
    """A baseline estimated a little above 1 must not turn the sign of the output."""
    assert c("tapered", raw, 1.0 + above) == pytest.approx(1.0 + above, rel=1e-12)
