"""Sets that need no archive: what is inside packages, and what is drawn here."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from sklearn.datasets import load_digits

from ocm_core.datasets.base import DataSet, permutation, recorded
from ocm_core.datasets.digits import DigitsData
from ocm_core.datasets.generated import SHAPES

from .kinds import DIGITS, GENERATED, MIXTURE, MNIST

NOWHERE = Path("nowhere")


def joined(opened: DataSet) -> tuple[np.ndarray, np.ndarray]:
    splits = [opened.splits[name] for name in ("train", "test")]
    values = [split.read(range(len(split))) for split in splits]
    return np.concatenate(values), np.concatenate([split.labels for split in splits])


@given(st.integers(1, 300), st.integers(0, 2**32 - 1))
def test_a_permutation_is_one_and_depends_on_its_seed(count: int, seed: int) -> None:
    order = permutation(count, seed)
    assert sorted(order) == list(range(count))
    assert count < 50 or order.tolist() != permutation(count, seed ^ 1).tolist()


def test_the_permutation_never_changes() -> None:
    assert permutation(8, 0).tolist() == [0, 3, 7, 5, 1, 2, 6, 4]
    sha256 = "25460ca1e372ac795ae23c8b52964383003527d36c0d567f31ca723ca45db187"
    assert recorded(permutation(1797, 0), 0) == {"seed": 0, "sha256": sha256}


def test_digits_are_all_there_in_the_recorded_order() -> None:
    values, labels = joined(DIGITS.open(NOWHERE))
    order = permutation(1797, 0)
    bundle = load_digits()
    np.testing.assert_array_equal(values[:, 0], bundle.images[order])
    np.testing.assert_array_equal(labels, bundle.target[order])
    assert values.max() == 16


def test_another_seed_divides_otherwise() -> None:
    first = DIGITS.open(NOWHERE)
    second = DIGITS.model_copy(update={"seed": 1}).open(NOWHERE)
    assert first.provenance["sha256"] == second.provenance["sha256"]
    assert first.provenance["permutation"] != second.provenance["permutation"]
    assert (joined(first)[0] != joined(second)[0]).any()


@pytest.mark.parametrize("share", [0.0, 1.0, -0.1])
def test_neither_split_may_be_empty(share: float) -> None:
    with pytest.raises(ValidationError, match="test_share"):
        DigitsData(kind="digits", test_share=share, seed=0)


def test_mnist_has_a_border_and_every_class() -> None:
    values, labels = joined(MNIST.open(NOWHERE))
    np.testing.assert_array_equal(np.bincount(labels), [500] * 10)
    assert values.max() == 255
    inside = values[:, :, 2:30, 2:30]
    assert values.sum(dtype=np.int64) == inside.sum(dtype=np.int64)
    assert (inside.max(axis=(0, 1, 2)) > 0).sum() >= 24  # columns of the digits themselves


def test_mixture_points_are_those_of_the_mixture() -> None:
    points = MIXTURE.open(NOWHERE).splits["train"].read(range(50))
    assert np.abs(points - 3 * np.rint(points / 3)).max() < 0.5  # five standard deviations


def test_an_image_is_a_function_of_its_index() -> None:
    short = GENERATED.model_copy(update={"train_size": 5}).open(NOWHERE)
    long = GENERATED.open(NOWHERE)
    np.testing.assert_array_equal(
        short.splits["train"].read(range(5)), long.splits["train"].read(range(40))[:5]
    )
    other = GENERATED.model_copy(update={"seed": 4}).open(NOWHERE)
    images = [
        opened.splits[split].read(range(5)).tobytes()
        for opened in (long, other)
        for split in ("train", "test")
    ]
    assert len(set(images)) == 4


def test_the_class_decides_shape_and_hue() -> None:
    """Averages of a class: inside the shape is its hue, far from it the gradients' grey."""
    block = GENERATED.model_copy(update={"classes": 3, "train_size": 300, "side": 16})
    split = block.open(NOWHERE).splits["train"]
    values, labels = split.read(range(300)).astype(float), split.labels
    assert labels.tolist() == [i % 3 for i in range(300)]
    for channel in range(3):  # hue k / 3 is red, green or blue
        middle = values[labels == channel][:, :, 4:12, 4:12].mean(axis=(0, 2, 3))
        rest = np.delete(middle, channel).max()
        assert middle[channel] > rest + (20 if channel != 2 else 5)  # class 2 is a thin ring


@pytest.mark.parametrize("outline", SHAPES)
def test_shapes_have_an_inside_and_fit(outline: object) -> None:
    axis = np.linspace(-1.5, 1.5, 61)
    distance = outline(*np.meshgrid(axis, axis))
    assert 0.1 < (distance < 0).mean() < 0.5
    assert (distance[[0, -1]] > 0).all() and (distance[:, [0, -1]] > 0).all()
