"""The Fréchet distance against the published evaluator, clean-fid and closed forms."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from ocm_core.errors import OcmError
from ocm_core.metrics.frechet import Statistics, frechet_distance
from tests.goldens_io import facts, tensor

CASES = tuple(facts("metrics")["cases"])


def features(seed: int, count: int, dimension: int, shift: float = 0.0) -> Tensor:
    """Correlated, with a spectrum that falls by orders of magnitude, as those of networks do."""
    generator = np.random.default_rng(seed)
    scale = np.exp(-4 * np.arange(dimension) / dimension)
    mixing, _ = np.linalg.qr(np.random.default_rng(0).normal(size=(dimension, dimension)))
    drawn = generator.normal(size=(count, dimension)) * scale @ mixing + shift
    return torch.from_numpy(drawn.astype(np.float32))


def diagonal(values: np.ndarray, seed: int = 0) -> Statistics:
    """A Gaussian about 0 with these variances along random axes."""
    mixing, _ = np.linalg.qr(np.random.default_rng(seed).normal(size=(len(values), len(values))))
    covariance = torch.from_numpy(mixing * values @ mixing.T)
    return Statistics(torch.zeros(len(values), dtype=torch.float64), covariance, None)


@pytest.mark.parametrize("case", CASES)
def test_the_published_evaluator(case: str) -> None:
    """It takes means in float32, which shows in the seventh digit."""
    real, generated = (tensor("metrics", f"{case}/features_{s}") for s in ("reference", "sample"))
    expected = pytest.approx(facts("metrics")["cases"][case]["fid"], rel=1e-6)
    assert frechet_distance(real=Statistics.of(real), generated=generated) == expected


@pytest.mark.parametrize(
    ("count", "expected"),
    [(40, 2.3601701067713243), (65, 1.7075259725409389), (500, 0.8111878136920367)],
)
def test_clean_fid(count: int, expected: float) -> None:
    """By `fid_from_feats` of 0.1.35, whose root of a singular matrix (40 < 64) is good to 1e-8."""
    real, generated = features(1, 2000, 64), features(2, count, 64, shift=0.1)
    ours = frechet_distance(real=Statistics.of(real), generated=generated)
    assert ours == pytest.approx(expected, rel=1e-6 if count < 64 else 1e-10)


@pytest.mark.parametrize("count", [2, 20, 63, 64, 200])
def test_few_features_and_their_statistics_are_at_the_same_distance(count: int) -> None:
    real, generated = Statistics.of(features(1, 500, 64)), features(2, count, 64, shift=0.05)
    expected = frechet_distance(real=real, generated=Statistics.of(generated))
    assert frechet_distance(real=real, generated=generated) == pytest.approx(expected, rel=1e-8)


@pytest.mark.parametrize("count", [20, 64, 500])
def test_a_set_is_at_no_distance_from_itself(count: int) -> None:
    points = features(3, count, 64, shift=3.0)
    statistics = Statistics.of(points)
    assert abs(frechet_distance(real=statistics, generated=statistics)) < 1e-9
    assert abs(frechet_distance(real=statistics, generated=points)) < 1e-6


@given(st.integers(0, 1000), st.sampled_from([1e-3, 1e-8, 1e-12, 0.0]))
def test_variances_along_common_axes_have_a_closed_form(seed: int, smallest: float) -> None:
    """Σ (√a - √b)²; eigenvalues alone would lose half the digits of tiny variances."""
    generator = np.random.default_rng(seed)
    a, b = generator.uniform(0.1, 1.0, size=(2, 24))
    a[:12], b[:12] = smallest * a[:12], smallest * b[:12]
    expected = float(((np.sqrt(a) - np.sqrt(b)) ** 2).sum())
    ours = frechet_distance(real=diagonal(a), generated=diagonal(b))
    assert ours == pytest.approx(expected, abs=1e-11 * (a.sum() + b.sum()))


def test_a_small_variance_beside_none_counts() -> None:
    """A singular covariance has no Cholesky factor: eigenvalues down to rounding are kept."""
    real, generated = (diagonal(np.array([1.0, small, 0.0])) for small in (1e-10, 1.0))
    found = frechet_distance(real=real, generated=generated)
    assert found == pytest.approx((1 - 1e-5) ** 2, abs=1e-10)


@given(st.lists(st.integers(1, 40), min_size=1, max_size=6), st.sampled_from([0.0, 1.0, 1e6]))
def test_pieces_of_any_size_make_the_same_statistics(sizes: list[int], offset: float) -> None:
    points = np.random.default_rng(0).normal(size=(sum(sizes) + 1, 5)) + offset
    pieces = torch.from_numpy(points).split([*sizes, 1])
    statistics = Statistics.over(pieces)
    assert statistics.count == len(points)
    np.testing.assert_allclose(statistics.mean, points.mean(0), rtol=1e-14, atol=1e-15)
    expected = np.cov(points, rowvar=False)
    np.testing.assert_allclose(statistics.covariance, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("count", [10, 200])
def test_half_of_the_product_of_factors_is_that_of_the_whole(count: int) -> None:
    draw = torch.Generator().manual_seed(0)
    real, other = (Statistics.of(torch.randn(n, 40, generator=draw)) for n in (count, 100))
    assert (real.cholesky is None) == (count < 40)
    found, whole = other.seen_from(real), real.factor.T @ other.covariance @ real.factor
    torch.testing.assert_close(found.tril(), whole.tril(), rtol=1e-12, atol=1e-13)


def test_statistics_survive_a_file(tmp_path: Path) -> None:
    statistics = Statistics.of(features(4, 50, 6))
    statistics.save(tmp_path / "statistics.npz")
    again = Statistics.load(tmp_path / "statistics.npz")
    assert torch.equal(again.mean, statistics.mean)
    assert torch.equal(again.covariance, statistics.covariance)
    assert again.count == 50


def test_other_files_are_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "page.npz").write_text("<html>")
    np.savez(tmp_path / "images.npz", arr_0=np.zeros(3))
    np.savez(tmp_path / "shapes.npz", mu=np.zeros(3), sigma=np.eye(4))
    np.savez(tmp_path / "objects.npz", mu=np.array([{}]), sigma=np.eye(1))
    for name in ("page", "images", "objects", "absent"):
        with pytest.raises(OcmError, match=rf"{name}\.npz: expected statistics .* mu and sigma"):
            Statistics.load(tmp_path / f"{name}.npz")
    with pytest.raises(OcmError, match=r"shapes\.npz: .* found \(3,\) and \(4, 4\)"):
        Statistics.load(tmp_path / "shapes.npz")


def test_what_has_no_distance_is_refused() -> None:
    real = Statistics.of(features(6, 20, 6))
    broken = features(7, 20, 6)
    broken[3, 2] = torch.nan
    with pytest.raises(OcmError, match=r"generated: expected finite .* in 1 of 5"):
        frechet_distance(real=real, generated=broken[:5])
    for other in (features(7, 20, 7), Statistics.of(features(7, 20, 7))):
        with pytest.raises(OcmError, match=r"6 dimensions \(real\) and 7 \(generated\)"):
            frechet_distance(real=real, generated=other)
    with pytest.raises(OcmError, match="at least 2 feature vectors, found 1"):
        Statistics.of(features(7, 1, 6))
