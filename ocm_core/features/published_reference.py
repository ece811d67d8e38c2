"""The reference files of guided diffusion's evaluator: one .npz file per data set.

`mu` and `sigma` are mean and covariance of Inception's features of the whole training set, `arr_0`
is a batch of images for precision and recall. Inception itself resized the images.
"""

from pathlib import Path

import numpy as np

from ocm_core.datasets.base import EightBitSplit, array_split
from ocm_core.errors import OcmError, unknown
from ocm_core.io.archives import Archive, copy_out, locate, no_member, open_zip, unpacked
from ocm_core.io.reading import reading
from ocm_core.metrics.frechet import Statistics

IMAGES = "arr_0.npy"
REFERENCES = {
    "imagenet256": Archive(
        kind="references",
        file="VIRTUAL_imagenet256_labeled.npz",
        url="https://openaipublic.blob.core.windows.net/diffusion/jul-2021/ref_batches/imagenet/256"
        "/VIRTUAL_imagenet256_labeled.npz",
        page="https://github.com/openai/guided-diffusion/tree/main/evaluations",
        terms="ImageNet's: non-commercial research and teaching",
    )
}


def reference_named(name: str) -> Archive:
    """Return the archive of that reference set."""
    if name not in REFERENCES:
        raise OcmError(f"evaluate.features.reference: {unknown(name, REFERENCES)}")
    return REFERENCES[name]


def open_reference(name: str, archives: Path) -> tuple[Statistics, EightBitSplit, dict[str, str]]:
    """Open the file in `<archives>/references/`: its statistics, images and provenance."""
    archive = locate(reference_named(name), archives)
    path = archive.path

    def copy_images(target: Path) -> None:
        with open_zip(path) as opened:
            if IMAGES not in opened.namelist():
                raise no_member(path, IMAGES)
            copy_out(path, opened, IMAGES, target / IMAGES)

    folder = unpacked(archive, copy_images)
    with reading(path, f"a plain array in {IMAGES}", "is it the published file?"):
        pixels = np.load(folder / IMAGES, mmap_mode="r", allow_pickle=False)
    if pixels.dtype != np.uint8 or pixels.ndim != 4 or pixels.shape[-1] != 3:
        expected = f"expected {IMAGES} of uint8 and (n, height, width, 3)"
        found = f"found {pixels.dtype} and {pixels.shape}; is it the published file?"
        raise OcmError(f"{path}: {expected}, {found}")
    provenance = {"file": path.name, "sha256": archive.sha256}
    images = EightBitSplit(array_split(pixels.transpose(0, 3, 1, 2)), 256)
    return Statistics.load(path), images, provenance
