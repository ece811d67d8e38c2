"""Distances by kernels against their definitions and clean-fid's."""

from itertools import permutations, product

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from ocm_core.errors import OcmError
from ocm_core.metrics.kernel_distance import kernel_distance, squared_discrepancy
from ocm_core.metrics.mmd import MmdTo, mean_kernel

# `kernel_distance` of clean-fid 0.1.35 for the sets of the two tests below
CLEAN_FID_WHOLE = 0.17436161541310904
CLEAN_FID_SUBSETS = 0.12751898005223838  # max_subset_size=200
LADDER = (0.25, 0.5, 1.0, 2.0, 4.0)


def points(seed: int, count: int, shift: float = 0.0, dimension: int = 6) -> Tensor:
    drawn = np.random.default_rng(seed).normal(size=(count, dimension)) + shift
    return torch.from_numpy(drawn.astype(np.float32))


def test_one_pair_of_subsets_is_the_definition() -> None:
    x, y = points(0, 9), points(1, 12, 0.5)

    def mean(pairs: object) -> float:
        return float(np.mean([(a @ b / 6 + 1) ** 3 for a, b in pairs]))

    a, b = x.double().numpy(), y.double().numpy()
    within = mean(permutations(a, 2)) + mean(permutations(b, 2))
    expected = within - 2 * mean(product(a, b))
    assert float(squared_discrepancy(x, y)) == pytest.approx(expected, rel=1e-12)


def test_clean_fid_where_a_subset_is_the_whole_set() -> None:
    x, y = points(0, 300), points(1, 300, 0.2)
    ours = kernel_distance(real=x, generated=y, subsets=2, seed=0)
    assert ours == pytest.approx(CLEAN_FID_WHOLE, rel=1e-9)


def test_clean_fid_on_subsets_within_the_standard_error() -> None:
    x, y = points(0, 2000), points(1, 2000, 0.2)
    ours = [kernel_distance(real=x, generated=y, subset_size=200, seed=i) for i in range(5)]
    assert abs(ours[0] - CLEAN_FID_SUBSETS) < 4 * np.std(ours, ddof=1) * np.sqrt(2)
    assert 0 < np.std(ours) < 0.1 * ours[0]


def test_no_bias_where_both_sets_are_the_same() -> None:
    values = [
        float(squared_discrepancy(points(2 * i, 10), points(2 * i + 1, 10))) for i in range(1000)
    ]
    assert abs(np.mean(values)) < 4 * np.std(values) / np.sqrt(len(values))


def test_subsets_are_a_function_of_the_seed() -> None:
    x, y = points(0, 40), points(1, 20, 0.3)
    two = kernel_distance(real=x, generated=y, subsets=2, seed=0)
    assert kernel_distance(real=x, generated=y, subsets=2, seed=0) == two
    assert kernel_distance(real=x, generated=y, subsets=2, seed=1) != two


def test_what_has_no_distance_is_refused() -> None:
    with pytest.raises(OcmError, match=r"6 dimensions \(real\) and 7 \(generated\)"):
        kernel_distance(real=points(0, 9), generated=points(1, 9, dimension=7), seed=0)
    with pytest.raises(OcmError, match="real: expected at least 2 feature vectors"):
        kernel_distance(real=points(0, 1), generated=points(1, 9), seed=0)


@given(st.integers(0, 1000), st.lists(st.floats(0.1, 5.0), min_size=1, max_size=5))
def test_mean_kernel_equals_its_definition(seed: int, bandwidths: list[float]) -> None:
    x, y = points(seed, 30).double(), points(seed + 1, 17).double()
    squares = ((x[:, None] - y[None]) ** 2).sum(-1)
    for widths in (bandwidths, LADDER):
        expected = np.mean([torch.exp(-squares / (2 * h**2)).mean().item() for h in widths])
        assert mean_kernel(x, y, widths) == pytest.approx(expected, rel=1e-9)


def test_a_set_is_at_no_mmd_from_itself_further_from_a_shifted_one_and_nan_from_nan() -> None:
    x, y = points(0, 500, dimension=2).double(), points(1, 500, dimension=2).double()
    distance = MmdTo(x, LADDER)
    assert distance(x) == pytest.approx(0.0, abs=1e-6)
    assert 0 < distance(y) < 0.1 < distance(y + 0.5)
    y[3, 1] = torch.nan
    assert np.isnan(distance(y))
