"""The interface of feature spaces, and how many images are run through one."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from typing import Protocol

import torch
from jaxtyping import Float32, UInt8
from torch import Tensor

from ocm_core.ahead import ahead, pinned, to_host
from ocm_core.errors import OcmError

UInt8Images = UInt8[Tensor, "n channel height width"]  # grey or RGB
FeatureVectors = Float32[Tensor, "n d"]


class FeatureSpace(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def dimension(self) -> int: ...

    @property
    def device(self) -> str: ...

    def features(self, images: UInt8Images) -> FeatureVectors:
        """One vector per image; it depends on that image alone."""
        ...


class ImageSet(Protocol):
    """A tensor, or a set of images that is read from disk a slice at a time."""

    def __len__(self) -> int: ...

    def __getitem__(self, rows: slice, /) -> UInt8Images: ...


def feature_batches(
    space: FeatureSpace,
    images: ImageSet,
    batch_size: int,
    progress: Callable[[range], Iterable[int]] = iter,
) -> Iterator[FeatureVectors]:
    """The features of all images in order, on the CPU, a batch at a time.

    Images are read ahead, and features come back while those of the next batch are computed.
    """

    def read(first: int) -> UInt8Images:
        batch = images[first : first + batch_size]
        _check(batch)
        return pinned(batch, space.device)

    coming: deque[Callable[[], FeatureVectors]] = deque()
    with closing(ahead(read, progress(range(0, len(images), batch_size)))) as batches:
        for batch in batches:
            coming.append(to_host(space.features(batch)))
            if len(coming) > 1:
                yield coming.popleft()()
    yield from (landed() for landed in coming)


def extract(
    space: FeatureSpace,
    images: ImageSet,
    batch_size: int,
    progress: Callable[[range], Iterable[int]] = iter,
) -> FeatureVectors:
    """The same as one tensor."""
    return torch.cat(list(feature_batches(space, images, batch_size, progress)))


def _check(images: UInt8Images) -> None:
    if images.dtype != torch.uint8 or images.ndim != 4 or images.shape[1] not in (1, 3):
        raise OcmError(
            "images: expected uint8 of shape (n, 1 or 3, height, width), found"
            f" {images.dtype} of shape {tuple(images.shape)}; convert them to grey levels 0 … 255"
        )
