"""The values that each data set has: pixels, crops, order, labels; what comes inside packages."""

import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy import ndarray
from PIL import Image
from pydantic import ValidationError
from sklearn.datasets import load_digits

from ocm_core.datasets import cifar10, imagenet256, lsun_bedroom
from ocm_core.datasets.base import DataSet, Split, permutation
from ocm_core.datasets.digits import DigitsData
from ocm_core.datasets.generated import SHAPES
from ocm_core.stages.encode import mirrored

from . import files
from .kinds import DIGITS, GENERATED, KINDS, MIXTURE, MNIST, TRUTH, WNIDS

NOWHERE = Path("nowhere")
pytestmark = pytest.mark.usefixtures("unpublished")


Opened = Callable[[str], DataSet]


@pytest.fixture
def opened(archives: Path) -> Opened:
    def open_kind(name: str) -> DataSet:
        kind = KINDS[name]
        kind.write(archives / kind.block.kind)
        return kind.block.open(archives)

    return open_kind


def whole(split: Split) -> ndarray:
    return split.read(range(len(split)))


def planes(images: list[ndarray]) -> ndarray:
    return np.stack([image.transpose(2, 0, 1) for image in images])


BORDERED = np.zeros((9, 32, 32, 1), np.uint8)
BORDERED[:, 2:30, 2:30] = [files.pixels(i, 28, 28)[..., :1] for i in range(9)]
PIXELS = {  # in the order of the archive: all the images, and the labels where there are any
    "cifar10": ([files.pixels(i, 32, 32) for i in range(10)], range(10)),
    "cifar10_package": ([files.pixels(i, 32, 32) for i in range(10)], range(10)),
    "mnist_original": (list(BORDERED), range(8, -1, -1)),
    "imagenet64_png": ([files.pixels(i, 64, 64) for i in range(7)], None),
    "imagenet64_npz": ([files.pixels(i, 64, 64) for i in range(10)], range(10)),
    "lsun_bedroom": ([files.pixels(i, 256, 300)[:, 22:278] for i in (2, 1, 0, 4, 3)], None),
}


@pytest.mark.parametrize("name", PIXELS)
def test_pixels_and_labels_are_read_in_the_order_of_the_archive(name: str, opened: Opened) -> None:
    images, labels = PIXELS[name]
    splits, (train, _) = opened(name).splits, KINDS[name].sizes
    np.testing.assert_array_equal(whole(splits["train"]), planes(images[:train]))
    np.testing.assert_array_equal(whole(splits["test"]), planes(images[train:]))
    if labels is not None:
        assert splits["train"].labels.tolist() == list(labels[:train])
        assert splits["test"].labels.tolist() == list(labels[train:])


def test_the_authors_archive_comes_first(opened: Opened, archives: Path) -> None:
    opened("cifar10_package")
    assert list(opened("cifar10").provenance["archives"]) == [cifar10.BINARY]
    (archives / "cifar10" / cifar10.BINARY).unlink()
    again = KINDS["cifar10"].block.open(archives)
    assert list(again.provenance["archives"]) == [cifar10.PACKAGE]


@pytest.mark.parametrize("name", ["cifar10", "cifar10_package"])
def test_batches_are_unpacked_once(
    name: str, opened: Opened, archives: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened(name)
    monkeypatch.setattr(cifar10, "each_member", None)
    again = KINDS[name].block.open(archives).splits["train"]
    assert isinstance(again.item(0), np.memmap)


def halved(image: ndarray) -> ndarray:
    """A triangle as wide as the scale, (1, 3, 3, 1) / 8, cut off and renormalised at the edges.

    Columns first, rounded to whole levels after each direction.
    """
    for axis in (1, 0):
        lines = np.moveaxis(image.astype(float), axis, 0)
        edge = np.zeros_like(lines[:1])
        padded = np.concatenate([edge, lines, edge])
        taps = [padded[start : start + len(lines) : 2] for start in range(4)]
        weights = np.ones((4, len(lines) // 2)) * np.array([[1], [3], [3], [1]])
        weights[0, 0] = weights[3, -1] = 0
        weights /= weights.sum(0)
        summed = sum(w[:, None, None] * tap for w, tap in zip(weights, taps, strict=True))
        image = np.moveaxis(np.floor(summed + 0.5), 0, axis)
    return image.astype(np.uint8)


def test_celeba64_is_cropped_and_halved(opened: Opened) -> None:
    splits = opened("celeba64").splits

    def expected(seed: int) -> ndarray:
        content = files.encoded(files.pixels(seed, 218, 178), "JPEG")
        return halved(np.asarray(Image.open(io.BytesIO(content)))[57:185, 25:153])

    np.testing.assert_array_equal(whole(splits["train"]), planes([expected(0), expected(3)]))
    np.testing.assert_array_equal(whole(splits["test"]), planes([expected(1), expected(4)]))


def test_imagenet256_numbers_classes_by_sorted_names(opened: Opened) -> None:
    data = opened("imagenet256")
    seeds = [10 * place + i for place in range(3) for i in range(place + 1)]
    by_name = [files.pixels(seed, 256, 256) for seed in seeds]
    order = permutation(6, 5)
    np.testing.assert_array_equal(whole(data.splits["train"]), planes(by_name)[order])
    np.testing.assert_array_equal(data.splits["train"].labels, np.array([0, 1, 1, 2, 2, 2])[order])
    order = permutation(4, 5, split=1)
    validation = planes([files.pixels(100 + i, 256, 256) for i in range(1, 5)])
    np.testing.assert_array_equal(whole(data.splits["test"]), validation[order])
    places = {1: 1, 2: 2, 3: 0}  # numbers of the challenge to places among WNIDS
    assert [WNIDS[place] for place in places.values()] == ["n02119789", "n15075141", "n01440764"]
    assert data.splits["test"].labels.tolist() == [places[TRUTH[row]] for row in order]
    assert set(data.provenance["permutations"]) == {"train", "test"}


@pytest.mark.parametrize(
    ("crop", "times"), [*((imagenet256.crop, n) for n in (1, 2, 4)), (lsun_bedroom.crop, 3)]
)
def test_crops_undo_whole_enlargements(crop: Callable[..., Image.Image], times: int) -> None:
    """Scaling by boxes is exact here; a bicubic step from the full size would not be."""
    image = files.pixels(0, 301, 256)
    enlarged = Image.fromarray(image.repeat(times, 0).repeat(times, 1))
    np.testing.assert_array_equal(np.asarray(crop(enlarged)), image[22:278])


def test_the_crop_of_adm_ends_with_a_bicubic_step() -> None:
    image = Image.fromarray(files.pixels(0, 300, 400))  # 256 / 300 of 400 is 341.3
    scaled = np.asarray(image.resize((341, 256), Image.Resampling.BICUBIC))
    np.testing.assert_array_equal(np.asarray(imagenet256.crop(image)), scaled[:, 42:298])


@pytest.mark.parametrize("mode", ["L", "CMYK", "RGBA", "P"])
def test_every_colour_mode_becomes_red_green_blue(mode: str, archives: Path) -> None:
    """From the archive of training images alone."""
    image = Image.fromarray(files.pixels(0, 256, 256)).convert(mode)
    file = io.BytesIO()
    image.save(file, "JPEG" if mode == "CMYK" else "PNG")
    inner = files.tar_bytes({"n01440764_0.JPEG": file.getvalue()})
    files.tar(archives / "imagenet256/ILSVRC2012_img_train.tar", {"n01440764.tar": inner})
    block = KINDS["imagenet256"].block.model_copy(update={"splits": ["train"]})
    read = whole(block.open(archives).splits["train"])
    np.testing.assert_array_equal(read, planes([np.asarray(Image.open(file).convert("RGB"))]))


def joined(opened: DataSet) -> tuple[ndarray, ndarray]:
    splits = [opened.splits[name] for name in ("train", "test")]
    values = [whole(split) for split in splits]
    return np.concatenate(values), np.concatenate([split.labels for split in splits])


@given(st.integers(1, 300), st.integers(0, 2**32 - 1))
def test_a_permutation_depends_on_its_seed_and_never_changes(count: int, seed: int) -> None:
    order = permutation(count, seed)
    assert sorted(order) == list(range(count))
    assert count < 50 or order.tolist() != permutation(count, seed ^ 1).tolist()
    assert permutation(8, 0).tolist() == [0, 3, 7, 5, 1, 2, 6, 4]


def test_digits_are_all_there_in_the_recorded_order_of_their_seed() -> None:
    first, second = (DIGITS.model_copy(update={"seed": s}).open(NOWHERE) for s in (0, 1))
    sha256 = "25460ca1e372ac795ae23c8b52964383003527d36c0d567f31ca723ca45db187"
    assert first.provenance["permutation"] == {"seed": 0, "sha256": sha256}
    assert first.provenance["permutation"] != second.provenance["permutation"]
    assert first.provenance["sha256"] == second.provenance["sha256"]
    with pytest.raises(ValidationError, match="test_share"):
        DigitsData(kind="digits", test_share=1.0, seed=0)
    bundle = load_digits()
    for seed, opened in enumerate((first, second)):
        (values, labels), order = joined(opened), permutation(1797, seed)
        np.testing.assert_array_equal(values[:, 0], bundle.images[order])
        np.testing.assert_array_equal(labels, bundle.target[order])


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
    short, long, other = (
        GENERATED.model_copy(update=changes).open(NOWHERE).splits
        for changes in ({"train_size": 5}, {}, {"seed": 4})
    )
    images = [split.read(range(5)) for opened in (long, other) for split in opened.values()]
    assert len({image.tobytes() for image in images}) == 4
    np.testing.assert_array_equal(short["train"].read(range(5)), images[0])


def test_a_mirrored_split_has_every_image_twice() -> None:
    split = GENERATED.open(NOWHERE).splits["test"]
    both, plain = mirrored(split), whole(split)
    np.testing.assert_array_equal(whole(both), np.concatenate([plain, plain[..., ::-1]]))
    np.testing.assert_array_equal(both.read(range(18, 23)), whole(both)[18:23])
    assert both.labels.tolist() == [*split.labels, *split.labels]


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
