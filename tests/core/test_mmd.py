"""The discrepancy against its definition."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ocm_core.metrics.mmd import MmdTo, mean_kernel

LADDER = (0.25, 0.5, 1.0, 2.0, 4.0)


def points(seed, count=30):
    return torch.from_numpy(np.random.default_rng(seed).normal(size=(count, 2)))


@given(st.integers(0, 1000), st.lists(st.floats(0.1, 5.0), min_size=1, max_size=5))
def test_mean_kernel_equals_its_definition(seed, bandwidths):
    for widths in (bandwidths, LADDER):
        x, y = points(seed), points(seed + 1, 17)
        squares = ((x[:, None] - y[None]) ** 2).sum(-1)
        expected = np.mean([torch.exp(-squares / (2 * h**2)).mean().item() for h in widths])
        assert mean_kernel(x, y, widths) == pytest.approx(expected, rel=1e-9)


def test_a_set_is_at_no_distance_from_itself_and_further_from_a_shifted_one():
    distance = MmdTo.set(points(0, 500), LADDER)
    assert distance(points(0, 500)) == pytest.approx(0.0, abs=1e-6)
    near, far = distance(points(1, 500)), distance(points(1, 500) + 0.5)
    assert 0 < near < 0.1 < far


def test_samples_that_are_no_numbers_have_no_distance():
    broken = points(1)
    broken[3, 1] = torch.nan
    assert np.isnan(MmdTo.set(points(0), LADDER)(broken))
