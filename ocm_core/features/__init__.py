"""Feature spaces in which sets of images are compared: FID, KID, precision and recall.

A space is named after its module, such as `inception` or `classifier`, which has a function
`build`. Only distances in `inception` are FID in the published sense.
"""

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from cleanfid.resize import make_resizer
from jaxtyping import Float32, UInt8
from torch import Tensor

from ocm_core.errors import OcmError
from ocm_core.prefetch import moved, pinned, prefetch, to_host
from ocm_core.progress import Progress

UInt8Images = UInt8[Tensor, "n channel height width"]  # grey or RGB
FeatureVectors = Float32[Tensor, "n d"]


@dataclass(frozen=True)
class FeatureSpace:
    """A frozen network that maps each image to a vector, whatever the other images are."""

    name: str
    network: Any
    device: str
    features: Callable[[UInt8Images], FeatureVectors]


class ImageSet(Protocol):
    """A tensor, or a set of images that is read from disk a slice at a time."""

    def __len__(self) -> int: ...

    def __getitem__(self, rows: slice, /) -> UInt8Images: ...


def feature_batches(
    space: FeatureSpace, images: ImageSet, batch_size: int, progress: Progress[int] = iter
) -> Iterator[FeatureVectors]:
    """Yield the features of all images in order, on the CPU, a batch at a time."""

    def read(first: int) -> UInt8Images:
        batch = images[first : first + batch_size]
        if batch.dtype != torch.uint8 or batch.ndim != 4 or batch.shape[1] not in (1, 3):
            found = f"{batch.dtype} of shape {tuple(batch.shape)}"
            raise OcmError(f"images: expected uint8 of shape (n, 1 or 3, h, w), found {found}")
        return pinned(batch, space.device)

    coming: deque[Callable[[], FeatureVectors]] = deque()
    with closing(prefetch(read, progress(range(0, len(images), batch_size)))) as batches:
        for batch in batches:
            coming.append(to_host(space.features(batch)))
            if len(coming) > 1:
                yield coming.popleft()()
    yield from (landed() for landed in coming)


def extract(
    space: FeatureSpace, images: ImageSet, batch_size: int, progress: Progress[int] = iter
) -> FeatureVectors:
    """Return the features of all images as one tensor."""
    return torch.cat(list(feature_batches(space, images, batch_size, progress)))


def resized(
    images: UInt8Images, side: int, device: str = "cpu"
) -> Float32[Tensor, "n 3 side side"]:
    """Resize as clean-fid does: antialiased, not rounded; other ways change FID.

    Return RGB images with values 0 … 255, resized on the host; grey is repeated to RGB.
    """
    resize = make_resizer("PIL", False, "bicubic", (side, side))
    colour = images.expand(-1, 3, -1, -1).permute(0, 2, 3, 1).cpu().numpy()
    done = torch.from_numpy(np.stack([resize(image) for image in colour])).permute(0, 3, 1, 2)
    return moved(pinned(done, device), device)
