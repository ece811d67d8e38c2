"""Inception's features as clean-fid computes them, for FID as it is published.

The network is a TorchScript file.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import torch
from cleanfid.inception_torchscript import InceptionV3W

from ocm_core.errors import OcmError
from ocm_core.features.interface import FeatureVectors, UInt8Images, resized
from ocm_core.io.fetch import Lock, PublishedFile, fetched, on_trust
from ocm_core.io.reading import refuse_damaged_zip, refuse_other_formats
from ocm_core.networks.keys import refuse_not_finite
from ocm_core.prefetch import moved

FOLDER = Path("checkpoints/inception")
FILE = "inception-2015-12-05.pt"
SOURCE = PublishedFile(
    file=FILE,
    page="https://github.com/GaParmar/clean-fid",
    url="https://nvlabs-fi-cdn.nvidia.com/stylegan2-ada-pytorch/pretrained/metrics/" + FILE,
)
_SIDE = 299


@dataclass(frozen=True)
class Inception:
    """Inception with clean-fid's resizing, or its own, which older published figures have."""

    network: InceptionV3W
    device: str
    dimension: int = 2048

    @property
    def name(self) -> str:
        return "inception (its own resizing)" if self.network.resize_inside else "inception"

    @torch.no_grad()
    def features(self, images: UInt8Images) -> FeatureVectors:
        """Return the last pooling layer."""
        if self.network.resize_inside:
            colour = moved(images, self.device).expand(-1, 3, -1, -1).float()
        else:
            colour = resized(images, _SIDE, self.device)
        pooled: FeatureVectors = self.network(colour)
        return pooled


def fetch(target: Path, folder: Path = FOLDER, lock: Lock | None = None) -> str:
    """Copy the checked file to the folder `target`, and return its address."""
    path, lock = folder / FILE, lock or Lock()
    with fetched(SOURCE, path, lock):
        refuse_other_formats(path, SOURCE.remedy(path))
        if on_trust(SOURCE, path, lock):
            refuse_damaged_zip(path, SOURCE.remedy(path))  # TorchScript does not look at the CRCs
        build(folder, "cpu")
    shutil.copyfile(path, target / FILE)
    return str(SOURCE.url)


def build(folder: Path, device: str, resize_inside: bool = False) -> Inception:
    """Load the network from its file in `folder`."""
    path = folder / FILE
    if not path.exists():
        raise OcmError(f"{path}: no such file; {SOURCE.remedy(path)}")
    try:
        network = InceptionV3W(str(folder), download=False, resize_inside=resize_inside)
        refuse_not_finite(network.state_dict())
    except OcmError as error:
        raise OcmError(f"{path}: {error}; {SOURCE.remedy(path)}") from None
    except (RuntimeError, AttributeError) as error:
        raise OcmError(
            f"{path}: expected clean-fid's Inception in TorchScript, found something else"
            f" ({str(error).splitlines()[0]}); {SOURCE.remedy(path)}"
        ) from None
    return Inception(network.to(device).eval().requires_grad_(False), device)
