"""What measures are without a block, against the measures themselves; and what errors follow."""

import numpy as np
import pytest
import torch
from numpy import ndarray
from torch import Tensor

from ocm_core.errors import OcmError
from ocm_core.metrics.frechet import Statistics, frechet_distance
from ocm_core.metrics.jackknife import (
    MEASURES,
    blocks_of,
    frechet_without,
    kernel_without,
    left_out,
    manifold_without,
)
from ocm_core.metrics.kernel_distance import squared_discrepancy
from ocm_core.metrics.precision_recall import Manifold, precision_recall
from tests.metrics.test_kernel_distance import points

BLOCKS, NEIGHBOURS = 5, 3
REAL, DRAWN = points(0, 90), points(1, 63, 0.3)


def kept(x: Tensor) -> list[Tensor]:
    return [torch.cat([x[: part.start], x[part.stop :]]) for part in blocks_of(len(x), BLOCKS)]


def centred(values: object) -> ndarray:
    array = np.asarray(values)
    return array - array.mean()


def test_blocks_hold_every_row_once() -> None:
    for count in (10, 63, 2000):
        parts = blocks_of(count, BLOCKS)
        assert [row for part in parts for row in range(count)[part]] == list(range(count))
        sizes = {len(range(count)[part]) for part in parts}
        assert max(sizes) - min(sizes) <= 1


def test_the_distances_of_what_is_left() -> None:
    real = Statistics.of(REAL)
    expected = [frechet_distance(real=real, generated=x) for x in kept(DRAWN)]
    assert frechet_without(real, DRAWN, BLOCKS) == pytest.approx(expected, rel=1e-12)
    expected = [float(squared_discrepancy(REAL, x)) for x in kept(DRAWN)]  # up to a constant
    found = kernel_without(REAL, DRAWN, BLOCKS)
    assert centred(found) == pytest.approx(centred(expected), rel=1e-9)


FAR = 50.0 * torch.cat([torch.eye(6), -torch.eye(6)])  # no other point covers them


@pytest.mark.parametrize("copied", [FAR[:0], FAR])
@pytest.mark.parametrize("rows", [7, 1024])
def test_the_manifold_of_what_is_left(
    rows: int, copied: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy of a real point that is left out covers nothing, not even that point."""
    drawn = torch.cat([DRAWN, copied])
    monkeypatch.setattr("ocm_core.metrics.jackknife._ROWS", rows)
    real = Manifold.of(torch.cat([REAL, copied]), neighbours=NEIGHBOURS)
    left = [Manifold.of(x, neighbours=NEIGHBOURS) for x in kept(drawn)]
    expected = [precision_recall(real=real, generated=generated) for generated in left]
    precision, recall = manifold_without(real, drawn, BLOCKS, neighbours=NEIGHBOURS)
    assert precision == pytest.approx([found.precision for found in expected])
    assert recall == pytest.approx([found.recall for found in expected])
    assert len({*recall}) > 1


def test_all_measures_move_about_their_value() -> None:
    real = Manifold.of(REAL, neighbours=NEIGHBOURS)
    whole = {name: float(i) for i, name in enumerate(MEASURES)}
    given = {"statistics": Statistics.of(REAL), "manifold": real, "neighbours": NEIGHBOURS}
    found = left_out(whole, DRAWN, BLOCKS, **given, manifold_images=40)
    assert tuple(found) == MEASURES
    for values in found.values():
        assert values.shape == (BLOCKS,) and values.std() > 0
    means = {name: values.mean() for name, values in found.items()}
    assert means == pytest.approx(whole, abs=1e-12)
    _, first = manifold_without(real, DRAWN[:40], BLOCKS, neighbours=NEIGHBOURS)
    assert found["recall"] - whole["recall"] == pytest.approx(centred(first))
    with pytest.raises(OcmError, match="at least 10"):
        left_out(whole, DRAWN[:9], BLOCKS, **given)


def error(without: ndarray) -> float:
    """As the module has it."""
    count = len(without)
    return float(np.sqrt((count - 1) / count * np.square(centred(without)).sum()))


def test_it_tells_how_far_distances_of_other_samples_would_be() -> None:
    real = Statistics(torch.zeros(2).double(), torch.eye(2).double(), None)
    generator = torch.Generator().manual_seed(0)
    whole, errors, apart = [], [], []
    for _ in range(100):
        features = torch.randn(400, 2, generator=generator, dtype=torch.float64) + 1.0
        found, other = (frechet_without(real, x, 20) for x in (features, features + 0.1))
        whole.append(found.mean())
        errors.append(error(found))
        apart.append(error(other - found))
    assert np.mean(errors) == pytest.approx(np.std(whole), rel=0.25)
    assert np.mean(apart) < 0.2 * np.mean(errors)
