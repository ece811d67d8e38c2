"""The jackknife, against what is known of means; and that pairs share their noise."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from benchmarks.distance_errors import BLOCKS, jackknife_error, leaving_out
from ocm_core.metrics.frechet import Statistics


def test_of_a_mean_it_is_the_standard_error_of_the_blocks_means() -> None:
    blocks = np.random.default_rng(0).normal(size=(BLOCKS, 7))
    without = np.array([np.delete(blocks, left_out, 0).mean() for left_out in range(BLOCKS)])
    expected = blocks.mean(1).std(ddof=1) / np.sqrt(BLOCKS)
    assert jackknife_error(without) == pytest.approx(expected)


def test_it_tells_how_far_distances_of_other_samples_would_be() -> None:
    """Within a quarter of the spread over a hundred sets; differences of pairs spread less."""
    real = Statistics(torch.zeros(2).double(), torch.eye(2).double(), None)
    generator = torch.Generator().manual_seed(0)
    whole, errors, apart = [], [], []
    for _ in range(100):
        features = torch.randn(400, 2, generator=generator, dtype=torch.float64) + 1.0
        found, other = (leaving_out(real, x) for x in (features, features + 0.1))
        whole.append(found.mean())
        errors.append(jackknife_error(found))
        apart.append(jackknife_error(other - found))
    assert np.mean(errors) == pytest.approx(np.std(whole), rel=0.25)
    assert np.mean(apart) < 0.2 * np.mean(errors)
