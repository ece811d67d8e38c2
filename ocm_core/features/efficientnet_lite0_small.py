"""EfficientNet-Lite0 at 64×64, a twelfth of the work: for images of at most 16×16; not FID."""

from ocm_core.features import FeatureSpace, efficientnet_lite0

SIDE = 64


def build(device: str) -> FeatureSpace:
    """Load the installed weights for small images."""
    return efficientnet_lite0.build(device, SIDE, "efficientnet_lite0_small")
