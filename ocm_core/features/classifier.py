"""Features of a small classifier, trained on the labels of the data set that is evaluated."""

import json
from pathlib import Path

import torch
from jaxtyping import Float32
from safetensors import safe_open
from safetensors.torch import load_file
from torch import Tensor, nn

from ocm_core.errors import OcmError
from ocm_core.features import FeatureSpace, FeatureVectors, UInt8Images
from ocm_core.io.atomic import write_tensors
from ocm_core.prefetch import moved


class ClassifierNetwork(nn.Module):
    """Convolutions with average pooling, from the side of the images down to 4, and two layers.

    Group norm needs no running statistics; SiLU has no dead units, which would make the covariance
    of the features singular.
    """

    def __init__(self, channels: int, side: int, classes: int, width: int = 16) -> None:
        super().__init__()
        self.sizes = {"channels": channels, "side": side, "classes": classes, "width": width}
        self.dimension = 4 * width
        layers: list[nn.Module] = []
        while side > 4:
            layers += [*_convolution(channels, width), nn.AvgPool2d(2)]
            channels, width, side = width, min(2 * width, self.dimension), side // 2
        layers += [*_convolution(channels, self.dimension), nn.Flatten()]
        layers += [nn.Linear(self.dimension * side**2, self.dimension), nn.SiLU()]
        self.trunk = nn.Sequential(*layers)
        self.readout = nn.Linear(self.dimension, classes)

    def features(self, images: UInt8Images) -> FeatureVectors:
        """Return the last hidden layer."""
        expected = (self.sizes["channels"], self.sizes["side"], self.sizes["side"])
        if (found := tuple(images.shape[1:])) != expected:
            raise OcmError(f"images: expected the classifier's shape {expected}, found {found}")
        hidden: FeatureVectors = self.trunk(images.float() / 127.5 - 1)
        return hidden

    def forward(self, images: UInt8Images) -> Float32[Tensor, "n classes"]:
        logits: Float32[Tensor, "n classes"] = self.readout(self.features(images))
        return logits


def _convolution(channels: int, width: int) -> tuple[nn.Module, ...]:
    return nn.Conv2d(channels, width, 3, padding=1), nn.GroupNorm(4, width), nn.SiLU()


def save(path: Path, network: ClassifierNetwork) -> None:
    """Write the weights to a safetensors file, with the sizes as metadata."""
    write_tensors(path, network.state_dict(), {"sizes": json.dumps(network.sizes)})


def build(path: Path, device: str) -> FeatureSpace:
    """Load the file that `save` wrote."""
    if not path.exists():
        raise OcmError(f"{path}: no such file; train the classifier first")
    with safe_open(path, "pt") as file, torch.device("meta"):
        network = ClassifierNetwork(**json.loads(file.metadata()["sizes"]))
    network.load_state_dict(load_file(path), assign=True)
    network.to(device).eval().requires_grad_(False)

    features = torch.no_grad()(lambda images: network.features(moved(images, device)))
    return FeatureSpace("classifier", network, device, features)
