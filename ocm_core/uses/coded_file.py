"""Files of coded images: a header that says by which model, and the bits; folders on either side.

A file is a mark, length and CRC of the header, the header as deflated JSON, and the words of the
stack. Damage is found before any network runs.
"""

from __future__ import annotations

from io import BytesIO
from pathlib import Path, PurePosixPath
from struct import Struct
from typing import Annotated, Any
from zlib import compress as deflate
from zlib import crc32, decompressobj

import numpy as np
import torch
from PIL import Image
from pydantic import BaseModel, ConfigDict, Field

from ocm_core.covariance import split
from ocm_core.datasets.base import eight_bit
from ocm_core.errors import OcmError
from ocm_core.io.atomic import room_for, write_bytes
from ocm_core.io.image_files import read_images
from ocm_core.io.reading import reading
from ocm_core.io.state_file import checksum
from ocm_core.uses.codec import FINENESS, REACH, ImageCodec, kind_of_processor
from ocm_core.uses.lossless import ImagePixels
from ocm_core.uses.stack import PER_BIN, PER_OCTAVE, Words

MARK, _SIZES = b"OCM images 1\n", Struct("<II")
EXPECTED, REMEDY = "a file of `ocm compress`", "copy it again from where it was written"
_MOST_HEADER = 64 << 20  # bytes: a million names
Natural = Annotated[int, Field(ge=0)]


class FileHeader(BaseModel):
    """What is said of the images, and what has to be the same where they are read."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    model: str  # digest
    processor: str
    request: dict[str, Any]  # the recipe, as it was asked for
    names: list[str]
    first: Annotated[int, Field(ge=1)]
    crc: Natural  # of the words
    pixels: Natural  # CRC of the images


def model_digest(code: ImageCodec) -> str:
    """Return the sha256 of all that the bits depend on: weights, head, tables and the recipe."""
    model, method = code.model, code.method
    modules: dict[str, torch.nn.Module] = {"network": model.network}
    if (label := split(method.label)[0]) in model.heads:
        modules["head"] = model.heads[label]
    tensors = {
        f"{kind}.{name}": tensor
        for kind, module in modules.items()
        for name, tensor in [*module.named_parameters(), *module.named_buffers()]
    }
    if method.spectrum:
        spectrum = model.spectrum(method.spectrum).tensors()
        tensors |= {f"spectrum.{name}": tensor for name, tensor in spectrum.items()}
    if model.moments is not None:
        tensors["moments"] = model.moments
    tensors["betas"] = torch.from_numpy(model.schedule.betas)
    kinds = [type(part).__module__ for part in (method, getattr(method, "method", method))]
    facts = [method.label, kinds, method.options, code.timesteps, code.decoder, code.clip]
    grids = [code.shape, REACH, FINENESS, PER_BIN, PER_OCTAVE]
    return checksum(tensors, repr([*facts, *grids, model.time, str(model.network)]))


def compress(
    code: ImageCodec, images: ImagePixels, names: list[str], request: dict[str, Any], path: Path
) -> int:
    """Write images of the codec's levels to a file; return its size."""
    coded = code.encode(images)
    payload = coded.words.astype("<u4").tobytes()
    header = FileHeader(
        model=model_digest(code),
        processor=kind_of_processor(),
        request=request,
        names=names,
        first=coded.first,
        crc=crc32(payload),
        pixels=crc32(images.tobytes()),
    )
    text = deflate(header.model_dump_json().encode(), 9)
    content = MARK + _SIZES.pack(len(text), crc32(text)) + text + payload
    with room_for(path, len(content)):
        write_bytes(path, content)
    return len(content)


def read_coded(path: Path) -> tuple[FileHeader, Words]:
    """Read a file whole; damage and another kind of processor are refused."""
    with reading(path, EXPECTED, REMEDY):
        content = path.read_bytes()
        if not content.startswith(MARK):
            raise ValueError(f"it begins with {content[: len(MARK)]!r}")
        size, crc = _SIZES.unpack_from(content, len(MARK))
        begin = len(MARK) + _SIZES.size
        text, payload = content[begin : begin + size], content[begin + size :]
        if len(text) != size or crc32(text) != crc:
            raise ValueError("the CRC of the header is not that of its bytes")
        header = FileHeader.model_validate_json(decompressobj().decompress(text, _MOST_HEADER))
        if crc32(payload) != header.crc or not 1 <= header.first <= len(header.names):
            raise ValueError("the CRC of the images is not that of their bytes")
        words = np.frombuffer(payload, "<u4").astype(np.uint32)
    if header.processor != (here := kind_of_processor()):
        why = "networks give other last digits there, and the images would be others"
        raise OcmError(f"{path}: written on {header.processor}, and this is {here}: {why}")
    return header, words


def decompress(code: ImageCodec, header: FileHeader, words: Words, path: Path) -> ImagePixels:
    """Return the images of a file that `read_coded` read; those of another model are refused."""
    if model_digest(code) != header.model:
        found = "written by another model: its weights, head, spectrum or timesteps differ"
        raise OcmError(f"{path}: {found}; give the one that it was written by")
    images = code.decode(words, header.first, len(header.names))
    if crc32(images.tobytes()) != header.pixels:
        found = "the images are not those that were written"
        raise OcmError(f"{path}: {found}; another version of a library may compute otherwise")
    return images


def read_levels(path: Path, shape: tuple[int, ...], levels: int) -> tuple[list[str], ImagePixels]:
    """Return all images of a folder as levels of the data, and their names."""
    names, pixels = read_images(path, shape)
    values = eight_bit(torch.arange(levels), levels).numpy()
    ranks = np.searchsorted(values, pixels)
    if (wrong := (values[ranks] != pixels).any((1, 2, 3))).any():
        found = f"values between the {levels} levels of the data"
        raise OcmError(f"{path}: {names[wrong.argmax()]}: {found}; take it out")
    return names, ranks.astype(np.uint8)


def write_images(folder: Path, names: list[str], images: ImagePixels, levels: int) -> None:
    """Write images of these levels as PNG files, which must not be there yet."""
    paths = [PurePosixPath(name) for name in names]
    if outside := [path for path in paths if path.is_absolute() or ".." in path.parts]:
        raise OcmError(f"{folder}: a file of the name {outside[0]} would lie outside of it")
    if there := [path for path in paths if (folder / path).exists()]:
        raise OcmError(f"{folder / there[0]}: is there already; give another folder")
    values = eight_bit(torch.arange(levels), levels).numpy()
    for path, image in zip(paths, images, strict=True):
        pixels, file = values[image].transpose(1, 2, 0), BytesIO()
        Image.fromarray(pixels[..., 0] if len(image) == 1 else pixels).save(file, "PNG")
        write_bytes(folder / path, file.getvalue())
