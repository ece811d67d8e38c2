"""A folder of images: what is read from it, what is refused, and what is not done twice."""

import io
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
import pytest
from PIL import Image
from pydantic import ValidationError

from ocm_core.datasets.base import DataSet
from ocm_core.datasets.folder import FolderData
from ocm_core.errors import OcmError
from ocm_core.io import image_files

from . import files
from .kinds import FOLDER

PLAIN = FOLDER.model_copy(update={"labels": "none", "classes": 0, "fit": "none", "side": 8})


def png(seed: int, height: int = 8, width: int = 8) -> bytes:
    return files.encoded(files.pixels(seed, height, width), "PNG")


IMAGES = {f"{number:02}.png": png(number) for number in range(10)}


def put(folder: Path, content: Mapping[str, bytes]) -> Path:
    for name, data in content.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


def opened(path: Path, archives: Path, **changes: object) -> DataSet:
    tree = PLAIN.model_dump() | {"path": str(path)} | changes
    return FolderData.model_validate(tree).open(archives)


def everything(data: DataSet) -> np.ndarray:
    return np.concatenate([split.read(range(len(split))) for split in data.splits.values()])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return put(tmp_path / "mine", IMAGES)


def test_folder_zip_and_tar_give_the_same(folder: Path, tmp_path: Path, archives: Path) -> None:
    first, other = opened(folder, archives), opened(folder, archives, seed=5)
    pixels = {files.pixels(number, 8, 8).transpose(2, 0, 1).tobytes() for number in range(10)}
    zipped = files.zip_(tmp_path / "mine.zip", IMAGES)
    tarred = files.tar(tmp_path / "mine.tar", dict(reversed(IMAGES.items())))
    for again in (other, opened(zipped, archives), opened(tarred, archives)):
        assert {value.tobytes() for value in everything(again)} == pixels
        assert again.provenance["archives"] == first.provenance["archives"]
        same = again is not other
        assert (again.provenance["permutation"] == first.provenance["permutation"]) == same
        assert np.array_equal(everything(again), everything(first)) == same


def test_a_full_disk_is_named_and_what_was_looked_at_is_kept(
    folder: Path, archives: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(record: Path, mode: str = "r", **options: Any) -> IO[Any]:
        return open("/dev/full" if mode == "a" else record, mode, **options)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "open", full)
        with pytest.raises(OcmError, match=r"\.checked\.jsonl: No space left .* the disk of"):
            opened(folder, archives)
    assert len(everything(opened(folder, archives))) == len(IMAGES)


def test_each_different_caption_is_a_class(folder: Path, tmp_path: Path, archives: Path) -> None:
    said = {name: ["7", "a cat", "12"][number % 3] for number, name in enumerate(IMAGES)}
    lines = ["file,caption", *(f"{name},{caption}" for name, caption in said.items())]
    captions = {"labels": "captions", "captions_csv": table(tmp_path / "captions.csv", lines)}
    data = opened(folder, archives, classes=3, **captions)
    for split in data.splits.values():
        assert split.captions is not None and split.labels is not None
        assert [["12", "7", "a cat"][label] for label in split.labels] == split.captions
    with pytest.raises(OcmError, match=r"classes is 2, found 3 different .*data\.classes to 3"):
        opened(folder, archives, classes=2, **captions)


def test_crop_resize_and_grey(tmp_path: Path, archives: Path) -> None:
    wide = np.zeros((8, 16, 3), np.uint8)
    wide[:, 4:12] = (255, 0, 0)  # the centre
    folder = put(tmp_path / "wide", {f"{n}.png": files.encoded(wide, "PNG") for n in range(4)})
    cropped = everything(opened(folder, archives, fit="center_crop"))
    assert (cropped[:, 0] == 255).all() and not cropped[:, 1:].any()
    stretched = everything(opened(folder, archives, fit="resize"))
    assert stretched.shape == cropped.shape and not stretched[:, :, :, 0].any()
    grey = everything(opened(folder, archives, fit="center_crop", channels=1))
    assert grey.shape == (4, 1, 8, 8) and (grey == 76).all()  # 0.299 · 255
    with pytest.raises(OcmError, match=r"0\.png: 16×8 pixels, as 4 of 4 images are not 8×8.*none"):
        opened(folder, archives)


def test_a_photograph_is_turned_as_its_camera_says(tmp_path: Path, archives: Path) -> None:
    exif, file = Image.Exif(), io.BytesIO()
    exif[0x0112] = 6  # turned by a quarter
    Image.fromarray(files.pixels(0, 8, 8)).save(file, "PNG", exif=exif)
    folder = put(tmp_path / "turned", {f"{n}.png": file.getvalue() for n in range(2)})
    read = opened(folder, archives).splits["train"].read(range(1))[0].transpose(1, 2, 0)
    np.testing.assert_array_equal(read, np.rot90(files.pixels(0, 8, 8), -1))


JPEG = files.encoded(files.pixels(0, 8, 8), "JPEG")
DEEP = io.BytesIO()
Image.fromarray(np.zeros((8, 8), np.uint16)).save(DEEP, "PNG")
BAD = {
    "cut": (JPEG[: len(JPEG) // 2], "Truncated"),
    "empty": (b"", "no JPEG, PNG, WEBP image"),
    "text": (b"not an image", "no JPEG, PNG, WEBP image"),
    "sixteen bits": (DEEP.getvalue(), "more than 8 bits a channel"),
    "another format": (files.encoded(files.pixels(0, 8, 8), "GIF"), "no JPEG, PNG, WEBP image"),
}


@pytest.mark.parametrize("what", BAD)
def test_what_cannot_be_read_is_named_and_can_be_left_out(
    what: str, folder: Path, archives: Path
) -> None:
    content, reason = BAD[what]
    put(folder, {"bad/one.jpg": content, "bad/two.png": content})
    with pytest.raises(OcmError) as error:
        opened(folder, archives)
    first, second, last = str(error.value).splitlines()
    assert first.startswith(f"{folder}/bad/one.jpg: ") and reason in first
    assert second.startswith(f"{folder}/bad/two.png: ") and reason in second
    assert last.startswith(f"{folder}: 2 files of 12 cannot be read") and "skip_unreadable" in last
    without = opened(folder, archives, skip_unreadable=True)
    assert len(everything(without)) == 10
    assert without.provenance["counts"]["unreadable"] == 2


def test_bombs(
    folder: Path, tmp_path: Path, archives: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    zeros = files.zip_(tmp_path / "zeros.zip", {"a.png": bytes(100 << 20)}, compression=8)
    with pytest.raises(OcmError, match=r"zeros\.zip: would unpack to 104857600 bytes"):
        opened(zeros, archives)
    monkeypatch.setattr(image_files, "MOST_PIXELS", 63)
    with pytest.raises(OcmError, match=r"00\.png: 8×8 pixels, more than 63"):
        opened(folder, archives)
    monkeypatch.setattr(image_files, "MOST_BYTES", 10)
    with pytest.raises(OcmError, match=r"00\.png: \d+ bytes, more than 10"):
        opened(folder, archives / "fresh")


def test_what_is_no_source_of_images(tmp_path: Path, archives: Path) -> None:
    def refused(path: Path, match: str) -> None:
        with pytest.raises(OcmError, match=rf"{path}: .*{match}"):
            opened(path, archives)

    nowhere = tmp_path / "nowhere"
    refused(nowhere, "not there; expected a folder, a zip or")
    nowhere.mkdir()
    refused(nowhere, "expected a folder.* found nothing")
    put(nowhere, {"notes.txt": b"x", "b.gif": b"x", ".DS_Store": b"x", "__MACOSX/._a.png": b"x"})
    refused(nowhere, r"found 1 \.gif, 1 \.txt")
    refused(nowhere / "notes.txt", "found a file that is none of them")
    packed = files.tar(tmp_path / "mine.tar.gz", IMAGES, "w:gz")
    refused(packed, "or a compressed tar; unpack it")
    single = put(tmp_path / "single", {"a.png": png(0)})
    refused(single, "1 image that can be read.* leaves none for training")


def test_classes_of_sub_folders(tmp_path: Path, archives: Path) -> None:
    names = [f"all/{kind}/{n}.png" for kind in ("dog", "cat") for n in range(3)]
    folder = put(tmp_path / "mine", {name: png(i) for i, name in enumerate(names)})
    labelled = {"labels": "folders", "classes": 2}
    data = opened(folder, archives, **labelled)
    of_pixels = [files.pixels(i, 8, 8).transpose(2, 0, 1).tobytes() for i in range(6)]
    for split in data.splits.values():
        for value, label in zip(split.read(range(len(split))), split.labels, strict=True):
            assert label == int(of_pixels.index(value.tobytes()) < 3)  # cat comes before dog
    with pytest.raises(OcmError, match=r"classes is 1, found 2 classes .*\(cat, dog\)"):
        opened(folder, archives, labels="folders", classes=1)
    put(folder, {"all/loose.png": png(9)})
    with pytest.raises(OcmError, match=r"in no folder of a class: all/loose\.png"):
        opened(folder, archives, **labelled)


def table(path: Path, lines: list[str]) -> str:
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def test_labels_and_captions_of_a_table(folder: Path, tmp_path: Path, archives: Path) -> None:
    rows = [f'{name},{10 * int(name[:2])},"image, no. {name[:2]}"' for name in IMAGES]
    both = table(tmp_path / "both.csv", ["file,label,caption", *reversed(rows)])
    tables = {"labels": "csv", "classes": 91, "labels_csv": both, "captions_csv": both}
    data = opened(folder, archives, **tables)
    for split in data.splits.values():
        read = split.read(range(len(split)))
        for value, label, caption in zip(read, split.labels, split.captions, strict=True):
            number = int(label) // 10  # whole numbers are classes themselves
            assert caption == f"image, no. {number:02}"
            np.testing.assert_array_equal(value, files.pixels(number, 8, 8).transpose(2, 0, 1))
    changed = table(tmp_path / "both.csv", ["file,label,caption", *rows])
    other = opened(folder, archives, **tables | {"labels_csv": changed})
    assert other.provenance["archives"] != data.provenance["archives"]


def test_other_tables(folder: Path, tmp_path: Path, archives: Path) -> None:
    def refused(lines: list[str], match: str) -> None:
        file = table(tmp_path / "captions.csv", lines)
        with pytest.raises(OcmError, match=rf"^{file}: {match}"):
            opened(folder, archives, captions_csv=file)

    rows = [f"{name},words" for name in IMAGES]
    refused(["name,caption", *rows], "expected .* columns file and caption, found name, caption")
    refused(["file,caption", *rows[2:]], r"no caption of 2 of 10 images .* 00\.png, 01\.png; add")
    refused(["file,caption", *rows[1:], "00.png,"], r"no caption of 1 of 10 images .* 00\.png")
    refused(["file,caption", *rows, rows[3]], r"more than one line of 03\.png; keep one")
    (tmp_path / "other.csv").write_bytes(b"\xff\xfe\x00")
    for name in ("other", "gone"):
        with pytest.raises(OcmError, match=rf"{name}\.csv: expected a CSV in UTF-8"):
            opened(folder, archives, captions_csv=str(tmp_path / f"{name}.csv"))


def test_a_killed_pass_goes_on_and_only_new_files_are_looked_at(
    folder: Path, archives: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    check = image_files._check

    def counted(files: image_files.ImageFiles, entry: image_files.FileEntry) -> object:
        read.append(entry.name)
        if len(read) == 5:
            raise KeyboardInterrupt
        return check(files, entry)

    monkeypatch.setattr(image_files, "_check", counted)
    with pytest.raises(KeyboardInterrupt):
        opened(folder, archives)
    first = opened(folder, archives)
    assert sorted(read) == sorted([*IMAGES, read[4]])
    put(folder, {"00.png": png(50), "new.png": png(51)})
    (record,) = (archives / "folder").glob("*.jsonl")
    record.write_text(record.read_text() + '{"name": "cut')
    del read[:]
    second = opened(folder, archives)
    assert read == ["00.png", "new.png"]
    assert second.provenance["archives"] != first.provenance["archives"]
    put(folder, {name: png(99) for name in IMAGES})
    with pytest.raises(OcmError, match=r"\.png: changed while it was in use"):
        second.splits["train"].read(range(2))


@pytest.mark.parametrize(
    ("labels", "match"),
    [("none", "classes: 3"), ("csv", "labels_csv: None"), ("captions", "captions_csv: null")],
)
def test_what_does_not_go_together(labels: str, match: str, folder: Path) -> None:
    with pytest.raises(ValidationError, match=rf"data\.{match}, and data\.labels is '{labels}'"):
        opened(folder, folder, classes=3, labels=labels)
