"""Precision and recall against the published evaluator and all distances at once."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy import ndarray
from torch import Tensor

from ocm_core.errors import OcmError
from ocm_core.metrics import precision_recall as manifold
from ocm_core.metrics.precision_recall import Manifold, PrecisionRecall, precision_recall
from tests.goldens_io import assert_close, facts, tensor

CASES = facts("metrics")["cases"]


def points(seed: int, count: int, dimension: int = 8) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).normal(size=(count, dimension)))


def all_at_once(real: ndarray, generated: ndarray, neighbours: int) -> PrecisionRecall:
    """The definition, from differences; exact for small integers."""

    def squares(x: ndarray, y: ndarray) -> ndarray:
        return ((x[:, None] - y[None]) ** 2).sum(-1)

    def inside(x: ndarray, y: ndarray) -> float:
        radii = np.sort(squares(y, y), 1)[:, neighbours]  # entry 0 is the point itself
        return float((squares(x, y) <= radii).any(1).mean())

    return PrecisionRecall(inside(generated, real), inside(real, generated))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("case", CASES)
def test_the_published_evaluator(case: str, dtype: torch.dtype) -> None:
    real, generated = (
        Manifold.of(tensor("metrics", f"{case}/features_{side}"), dtype=dtype, block_bytes=20_000)
        for side in ("reference", "sample")
    )
    tolerance = 2e-2 if CASES[case]["distance_precision"] == "float16" else 1e-5
    assert_close(real.radii, tensor("metrics", f"{case}/radii_reference").flatten(), tolerance)
    assert_close(generated.radii, tensor("metrics", f"{case}/radii_sample").flatten(), tolerance)
    found = precision_recall(real=real, generated=generated)
    assert found == (CASES[case]["precision"], CASES[case]["recall"])


OFFSETS, DTYPES = st.sampled_from([0, 1000]), st.sampled_from([torch.float32, torch.float64])


@settings(max_examples=60)
@given(st.integers(0, 10_000), st.integers(1, 4), st.integers(200, 10_000), OFFSETS, DTYPES)
def test_ties_fall_as_in_exact_arithmetic_whatever_the_blocks(
    seed: int, neighbours: int, block_bytes: int, offset: int, dtype: torch.dtype
) -> None:
    generator = np.random.default_rng(seed)
    real, generated = (generator.integers(0, 4, size=(n, 3)) + offset for n in (30, 25))
    one, other = (
        Manifold.of(torch.from_numpy(x).float(), neighbours=neighbours, dtype=dtype, **options)
        for x, options in ((real, {"block_bytes": block_bytes}), (generated, {}))
    )
    found = precision_recall(real=one, generated=other)
    assert found == all_at_once(real, generated, neighbours)


def test_small_gaps_between_points_far_from_the_centre() -> None:
    """Two clusters 1e4 apart: squared distances of 1e-2 are below float32's rounding of 1e8."""
    far = torch.tensor([[-1e4], [1e4]]).double()
    real, generated = (
        torch.cat([0.1 * points(seed + side, 60, 2) + far[side] for side in (0, 1)])
        for seed in (0, 2)
    )
    found = precision_recall(real=Manifold.of(real), generated=Manifold.of(generated))
    assert found == all_at_once(real.numpy(), generated.numpy(), 3)


def test_no_block_is_larger_than_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []
    squares = manifold.squared_distances

    def measured(*arguments: Tensor, **options: float) -> Tensor:
        block = squares(*arguments, **options)
        sizes.append(block.nbytes)
        return block

    monkeypatch.setattr(manifold, "squared_distances", measured)
    real, generated = (Manifold.of(points(seed, 100), block_bytes=8000) for seed in (0, 1))
    precision_recall(real=real, generated=generated)
    assert max(sizes) <= 8000
    blocks = -(-100 // 31)  # 31² · 8 bytes are just below 8000
    assert len(sizes) == blocks * (blocks + 1) + blocks**2  # half of the square, twice; and one


def test_radii_are_computed_once() -> None:
    real, generated = Manifold.of(points(0, 100)), Manifold.of(points(1, 80))
    again = Manifold.known(real.points, real.radii)
    expected = precision_recall(real=real, generated=generated)
    assert precision_recall(real=again, generated=generated) == expected


def test_what_has_no_manifold_is_refused() -> None:
    with pytest.raises(OcmError, match=r"at least 4 feature vectors .* shape \(3, 8\)"):
        Manifold.of(points(0, 3))
    broken = points(0, 10)
    broken[0, 0] = torch.inf
    with pytest.raises(OcmError, match=r"expected finite feature vectors.* 1 of 10"):
        Manifold.of(broken)
    with pytest.raises(OcmError, match=r"8 dimensions \(real\) and 5 \(generated\)"):
        precision_recall(real=Manifold.of(points(0, 9)), generated=Manifold.of(points(0, 9, 5)))
