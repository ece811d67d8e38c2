"""Inception's features as clean-fid computes them from a TorchScript file, for published FID."""

import shutil
from pathlib import Path

import torch
from cleanfid.inception_torchscript import InceptionV3W

from ocm_core.errors import OcmError
from ocm_core.features import FeatureSpace, FeatureVectors, UInt8Images, resized
from ocm_core.io.fetch import Lock, PublishedFile, fetched
from ocm_core.io.reading import reading, refuse_other_formats
from ocm_core.networks.keys import refuse_not_finite
from ocm_core.prefetch import moved

FOLDER = Path("checkpoints/inception")
FILE = "inception-2015-12-05.pt"
SOURCE = PublishedFile(
    file=FILE,
    page="https://github.com/GaParmar/clean-fid",
    url="https://nvlabs-fi-cdn.nvidia.com/stylegan2-ada-pytorch/pretrained/metrics/" + FILE,
)


def fetch(target: Path, folder: Path = FOLDER, lock: Lock | None = None) -> str:
    """Copy the checked file to the folder `target`, and return its address."""
    path = folder / FILE
    with fetched(SOURCE, path, lock or Lock()):  # TorchScript does not look at the CRCs
        refuse_other_formats(path, SOURCE.remedy(path))
        build(folder, "cpu")
    shutil.copyfile(path, target / FILE)
    return str(SOURCE.url)


def build(folder: Path, device: str, resize_inside: bool = False) -> FeatureSpace:
    """Load the network; it resizes images itself for older published figures."""
    path = folder / FILE
    if not path.exists():
        raise OcmError(f"{path}: no such file; {SOURCE.remedy(path)}")
    with reading(path, "clean-fid's Inception in TorchScript", SOURCE.remedy(path)):
        network = InceptionV3W(str(folder), download=False, resize_inside=resize_inside)
    refuse_not_finite(network.state_dict(), path, SOURCE.remedy(path))
    network.to(device).eval().requires_grad_(False)

    @torch.no_grad()
    def features(images: UInt8Images) -> FeatureVectors:
        """Return the last pooling layer."""
        if resize_inside:
            colour = moved(images, device).expand(-1, 3, -1, -1).float()
        else:
            colour = resized(images, 299, device)
        pooled: FeatureVectors = network(colour)
        return pooled

    name = "inception (its own resizing)" if resize_inside else "inception"
    return FeatureSpace(name, network, device, features)
