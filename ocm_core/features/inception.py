"""Inception's features as clean-fid computes them, for FID as it is published.

The network is a TorchScript file. Its digest is recorded when it is first used, and a file that
differs from it later is refused before anything opens it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from cleanfid.downloads_helper import inception_url
from cleanfid.inception_torchscript import InceptionV3W

from ocm_core.ahead import moved
from ocm_core.errors import OcmError
from ocm_core.features.interface import FeatureVectors, UInt8Images
from ocm_core.features.resizing import resized
from ocm_core.io.formats import refuse_damaged_zip
from ocm_core.io.lock import FileRecord, Lock
from ocm_core.io.unpickle import refuse_other_formats

FOLDER = Path("checkpoints/inception")
FILE = "inception-2015-12-05.pt"
URL: str = inception_url
LOCK = Lock()
_KEY = f"inception/{FILE}"
_SIDE = 299


@dataclass(frozen=True)
class Inception:
    network: InceptionV3W
    device: str
    dimension: int = 2048

    @property
    def name(self) -> str:
        return "inception (its own resizing)" if self.network.resize_inside else "inception"

    @torch.no_grad()
    def features(self, images: UInt8Images) -> FeatureVectors:
        if self.network.resize_inside:
            shown = moved(images, self.device).expand(-1, 3, -1, -1).float()
        else:
            shown = resized(images, _SIDE, self.device)
        pooled: FeatureVectors = self.network(shown)
        return pooled


def remedy(path: Path) -> str:
    return f"fetch it by hand from {URL}, and put it at {path}"


def is_recorded(lock: Lock = LOCK) -> bool:
    """Whether the digest of the file is known; its authors publish none."""
    return lock.recorded(_KEY) is not None


def build(folder: Path, device: str, resize_inside: bool = False, lock: Lock = LOCK) -> Inception:
    """Read the network from its file in `folder`, which is `FOLDER` in the pipeline.

    clean-fid resizes with antialiasing. The network's own resizing (`resize_inside`) has none;
    older published figures and statistics were made with it.
    """
    path = folder / FILE
    advice = remedy(path)
    if not path.exists():
        raise OcmError(f"{path}: no such file; {advice}")
    refuse_other_formats(path, advice)
    found = FileRecord.of(path)
    lock.check(_KEY, found, path, advice)
    if not is_recorded(lock):
        refuse_damaged_zip(path, advice)  # TorchScript does not look at the CRCs
    try:
        network = InceptionV3W(str(folder), download=False, resize_inside=resize_inside).to(device)
    except (RuntimeError, AttributeError) as error:
        raise OcmError(
            f"{path}: expected clean-fid's Inception in TorchScript, found something else"
            f" ({str(error).splitlines()[0]}); {advice}"
        ) from None
    lock.record(_KEY, found)
    return Inception(network.eval().requires_grad_(False), device)
