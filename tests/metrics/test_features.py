"""The feature spaces: what goes into the networks, what comes out, and what is refused."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from torch import Tensor

from ocm_core.errors import OcmError
from ocm_core.features import (
    FeatureSpace,
    classifier,
    efficientnet_lite0,
    efficientnet_lite0_small,
    extract,
    feature_batches,
    inception,
    resized,
)
from ocm_core.features.classifier import ClassifierNetwork
from ocm_core.features.classifier_training import train_classifier
from ocm_core.io.fetch import Lock
from ocm_core.metrics.frechet import Statistics, frechet_distance
from ocm_core.pipeline.sources import closure
from tests.core.doubles import changed, killed
from tests.goldens_io import arrays
from tests.metrics.tiny_inception import Layers, TinyInception


def images(count: int, channels: int = 3, side: int = 16) -> Tensor:
    drawn = np.random.default_rng(0).integers(0, 256, size=(count, channels, side, side))
    return torch.from_numpy(drawn.astype(np.uint8))


class Brightness(NamedTuple):
    """A space of one dimension."""

    name: str = "brightness"
    device: str = "cpu"

    def features(self, images: Tensor) -> Tensor:
        return images.float().mean((1, 2, 3))[:, None]


def test_many_images_go_through_in_batches_and_in_order() -> None:
    seen: list[int] = []
    found = extract(Brightness(), images(10), 4, lambda firsts: seen.extend(firsts) or firsts)
    assert seen == [0, 4, 8]
    assert torch.equal(found, Brightness().features(images(10)))
    batches = feature_batches(Brightness(), images(10), 4)
    assert [len(batch) for batch in batches] == [4, 4, 2]


@pytest.mark.parametrize(
    "wrong", [images(2).float(), images(2)[:, :2], images(2)[0]], ids=["float", "two", "one"]
)
def test_what_is_no_batch_of_images_is_refused(wrong: Tensor) -> None:
    with pytest.raises(OcmError, match=r"images: expected uint8 .* found torch\.\w+ of shape"):
        extract(Brightness(), wrong, 4)


def test_resizing_keeps_levels_and_repeats_grey() -> None:
    grey = torch.tensor([0, 127, 255], dtype=torch.uint8).view(3, 1, 1, 1).expand(3, 1, 8, 8)
    large = resized(grey, 20)
    assert large.shape == (3, 3, 20, 20)
    assert torch.equal(large, grey.float()[:, :, :1, :1].expand(3, 3, 20, 20))
    assert torch.equal(resized(images(2), 16), images(2).float())


@pytest.mark.parametrize("side", [6, 20])
def test_resizing_is_clean_fids(side: int) -> None:
    assert np.array_equal(resized(images(2), side), arrays("clean_fid")[f"resized_{side}"])


@pytest.mark.parametrize(("count", "channels"), [(2, 3), (2, 1), (1, 3), (1, 1)])
def test_resized_images_are_channels_last(count: int, channels: int) -> None:
    """Another layout takes other convolutions, and features differ in their last digits."""
    assert resized(images(count, channels), 20).stride() == (1200, 1, 60, 3)


@pytest.fixture(scope="module")
def efficientnet() -> FeatureSpace:
    return efficientnet_lite0.build("cpu")


def test_what_efficientnet_sees(
    efficientnet: FeatureSpace, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Tensor] = []

    def extract_features(x: Tensor) -> Tensor:
        seen.append(x)
        return torch.ones(len(x), 1280, 7, 7)

    monkeypatch.setattr(efficientnet.network, "extract_features", extract_features)
    levels = torch.tensor([0, 255], dtype=torch.uint8).view(2, 1, 1, 1).expand(2, 1, 8, 8)
    efficientnet.features(levels)
    assert seen[0].shape == (2, 3, 224, 224)
    assert seen[0].amin((1, 2, 3)).tolist() == seen[0].amax((1, 2, 3)).tolist() == [-127 / 128, 1.0]


def test_small_images_have_a_space_of_their_own() -> None:
    """The more noise on digits, the farther they are."""
    digits = torch.from_numpy(load_digits().images * 15.9)[:, None]
    space, noise = efficientnet_lite0_small.build("cpu"), torch.randn(100, 1, 8, 8)
    assert space.name == "efficientnet_lite0_small"
    noisy = [(digits[100:200] + scale * noise).clamp(0, 255) for scale in (0, 15, 40, 90)]
    real, *features = (extract(space, x.to(torch.uint8), 50) for x in (digits[:100], *noisy))
    distances = [frechet_distance(real=Statistics.of(real), generated=x) for x in features]
    assert distances == sorted(distances) and distances[1] > 1.5 * distances[0]


def test_efficientnet_features_are_what_its_last_layer_reads(efficientnet: FeatureSpace) -> None:
    found = efficientnet.features(images(3))
    assert found.shape == (3, 1280) and found.dtype == torch.float32
    x = (resized(images(3), 224) - 127) / 128
    torch.testing.assert_close(efficientnet.network._fc(found), efficientnet.network(x))
    torch.testing.assert_close(extract(efficientnet, images(3), 1), found, rtol=1e-4, atol=1e-4)


def test_efficientnet_has_imagenet_in_it(efficientnet: FeatureSpace) -> None:
    """A yellow disc on black is a ping-pong ball, class 722."""
    y, x = np.mgrid[-1:1:64j, -1:1:64j]
    disc = (x**2 + y**2 < 0.5) * np.array([250, 180, 20])[None, :, None, None]
    found = efficientnet.features(torch.from_numpy(disc.astype(np.uint8)))
    assert efficientnet.network._fc(found).argmax(1).tolist() == [722]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    path = tmp_path / "inception" / inception.FILE
    path.parent.mkdir()
    torch.jit.script(TinyInception()).save(path)
    return path.parent


@pytest.fixture
def lock(tmp_path: Path) -> Lock:
    return Lock(tmp_path / "checkpoints.lock.json")


@pytest.mark.parametrize("inside", [False, True])
def test_inception_is_clean_fids(inside: bool, folder: Path) -> None:
    space = inception.build(folder, "cpu", resize_inside=inside)
    features = extract(space, images(4, side=40), 3)
    assert features.shape == (4, 2048)
    assert space.name == ("inception (its own resizing)" if inside else "inception")
    expected = arrays("clean_fid")["inception_resizing_inside" if inside else "inception"]
    np.testing.assert_allclose(features[:, ::64], expected, rtol=1e-5, atol=1e-6)


def test_the_first_fetch_records_the_digest_and_another_file_is_refused_unopened(
    folder: Path, lock: Lock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(2):
        inception.fetch(tmp_path, folder, lock)
        assert list(json.loads(lock.path.read_text())) == ["inception/inception-2015-12-05.pt"]
        assert (tmp_path / inception.FILE).read_bytes() == (folder / inception.FILE).read_bytes()
    torch.manual_seed(1)
    torch.jit.script(TinyInception()).save(folder / inception.FILE)
    monkeypatch.setattr(torch.jit, "load", lambda path, **_: pytest.fail("it was opened"))
    with pytest.raises(OcmError, match=r"expected sha256 \w{64} .* as recorded in .*lock\.json"):
        inception.fetch(tmp_path, folder, lock)


def test_building_inception_downloads_nothing(tmp_path: Path) -> None:
    path = tmp_path / "checkpoints" / "inception"
    with pytest.raises(OcmError, match=r"no such file; fetch it by hand from https://\S+\.pt, lin"):
        inception.build(path, "cpu")
    expected = Path("checkpoints/inception/inception-2015-12-05.pt")
    assert expected == inception.FOLDER / inception.FILE and not path.exists()


def write_nan(path: Path) -> None:
    network = TinyInception()
    network.layers.linear.weight.data[3, 4] = torch.nan
    torch.jit.script(network).save(path)


WRONG: dict[str, Callable[[Path], object]] = {
    "found a web page": lambda path: path.write_text("<html>quota</html>"),
    "expected clean-fid's Inception .* no attribute 'layers'": torch.jit.script(Layers()).save,
    "expected clean-fid's Inception in TorchScript": lambda path: torch.save({"w": 3}, path),
    r"layers\.linear\.weight has values that are not finite": write_nan,
}


@pytest.mark.parametrize("message", WRONG)
def test_what_is_no_inception_is_not_recorded(message: str, folder: Path, lock: Lock) -> None:
    WRONG[message](folder / inception.FILE)
    with pytest.raises(OcmError, match=message):
        inception.fetch(folder.parent, folder, lock)
    assert not lock.path.exists() and (folder / inception.FILE).exists()  # it was put there by hand


SETTINGS = {"batch_size": 64, "learning_rate": 2e-3, "weight_decay": 0.05, "ema": 0.5, "seed": 0}


def digits() -> tuple[Tensor, Tensor]:
    bunch = load_digits()
    levels = np.round(bunch.images * (255 / 16)).astype(np.uint8)[:, None]
    return torch.from_numpy(levels), torch.from_numpy(bunch.target)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[ClassifierNetwork, float]:
    folder = tmp_path_factory.mktemp("classifier")
    return train_classifier(*digits(), changed(iterations=400, **SETTINGS), folder)[:2]


def test_the_classifier_tells_digits_apart_and_orders_sets(trained) -> None:
    network, accuracy = trained
    assert accuracy >= 0.97
    space = FeatureSpace("classifier", network, "cpu", network.features)
    found, labels = extract(space, digits()[0], 500), digits()[1]
    assert found.shape == (1797, 64)
    half = Statistics.of(found[::2])
    same = frechet_distance(real=half, generated=found[1::2])
    no_sevens = frechet_distance(real=half, generated=found[1::2][labels[1::2] != 7])
    noise = frechet_distance(real=half, generated=extract(space, images(900, 1, 8), 500))
    assert 0 < 5 * same < no_sevens < noise / 3


def test_the_classifier_survives_a_file(trained, tmp_path: Path) -> None:
    network, _ = trained
    classifier.save(tmp_path / "classifier.safetensors", network)
    space = classifier.build(tmp_path / "classifier.safetensors", "cpu")
    some = digits()[0][:10]
    assert torch.equal(space.features(some), network.features(some))
    assert torch.equal(network.readout(space.features(some)), network(some))
    with pytest.raises(OcmError, match=r"absent: no such file; train the classifier first"):
        classifier.build(tmp_path / "absent", "cpu")
    with pytest.raises(OcmError, match=r"shape \(1, 8, 8\), found \(3, 8, 8\)"):
        space.features(images(2, 3, 8))


def test_training_is_a_function_of_the_seed_and_resumes(tmp_path: Path) -> None:
    some = [values[:200] for values in digits()]
    settings = changed(iterations=12, **SETTINGS)
    first, second = (train_classifier(*some, settings, tmp_path / name) for name in ("1", "2"))
    with pytest.raises(KeyboardInterrupt):
        train_classifier(*some, settings, tmp_path / "3", progress=killed(7))
    third = train_classifier(*some, settings, tmp_path / "3")
    for name, expected in first[0].state_dict().items():
        for other, _, _ in (second, third):
            assert torch.equal(other.state_dict()[name], expected), name
        assert torch.equal(first[2].average[f"classifier.{name}"], expected), name


def test_comparing_images_does_not_depend_on_how_a_classifier_is_trained() -> None:
    assert not {name for name in closure(["ocm_core.features.classifier"]) if "training" in name}
    assert "ocm_core.training.loop" in closure(["ocm_core.features.classifier_training"])


@pytest.mark.parametrize(("channels", "side"), [(1, 32), (3, 28)])
def test_the_network_fits_images_of_other_sizes(channels: int, side: int) -> None:
    network = ClassifierNetwork(channels, side, classes=7, width=8)
    some = images(2, channels, side)
    assert network.features(some).shape == (2, network.dimension) == (2, 32)
    assert network(some).shape == (2, 7)
