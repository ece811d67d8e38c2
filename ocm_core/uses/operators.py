"""Operators of inverse problems by name: those of deepinv, y = A x_0, for images in [-1, 1].

deepinv imports torchvision as it starts, for figures, data sets and rotations. Operators take none
of it, and beside a torch of another build it does not import: where it is missing, stand-ins take
its place until deepinv is imported, which fail when they are used.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from math import ceil
from types import ModuleType
from typing import Annotated, Any, Literal

import torch
from pydantic import Field

from ocm_core.errors import OcmError
from ocm_core.rng.streams import Stream, stream
from ocm_core.schema.block import Params, Positive, Seed

MISSING = "torchvision"
_REACH = 3.0  # standard deviations of a blur


class DenoisingOperator(Params):
    """A = I."""

    kind: Literal["denoising"] = "denoising"


class InpaintingOperator(Params):
    """Pixels that are missing, the same ones in every image."""

    kind: Literal["inpainting"]
    missing: Annotated[float, Field(ge=0, lt=1)] = 0.7  # a share
    seed: Seed = 0


class BlurOperator(Params):
    """A Gaussian filter, which goes on at the other side of the image."""

    kind: Literal["blur"]
    width: Positive = 1.0  # its standard deviation in pixels


class SuperResolutionOperator(Params):
    """A filter (bilinear), and one pixel of `factor` in each direction."""

    kind: Literal["super_resolution"]
    factor: Annotated[int, Field(ge=2, le=64)] = 2


OperatorParams = Annotated[
    DenoisingOperator | InpaintingOperator | BlurOperator | SuperResolutionOperator,
    Field(discriminator="kind"),
]


def build(operator: OperatorParams, shape: Sequence[int], mask: torch.Tensor | None = None) -> Any:
    """Return deepinv's operator for images of a shape; `mask` is 1 where pixels are known."""
    if len(shape) != 3:
        raise OcmError(f"operator: for images, not for items of shape {tuple(shape)}")
    channels, height, width = shape
    physics, kind = import_deepinv().physics, operator.kind
    if mask is not None and kind != "inpainting":
        raise OcmError(f"mask: goes with the operator 'inpainting', not with '{kind}'")
    match operator:
        case InpaintingOperator():
            known = _mask(operator, height, width) if mask is None else mask
            if known.shape != (1, height, width):
                found = " × ".join(map(str, known.shape[1:]))
                raise OcmError(f"mask: {found} pixels; expected {height} × {width}")
            return physics.Inpainting(img_size=(channels, height, width), mask=known)
        case BlurOperator(width=deviation):
            side = 2 * min(ceil(_REACH * deviation), (min(height, width) - 1) // 2) + 1
            kernel = physics.functional.gaussian_blur((side, side), deviation)
            return physics.Blur(filter=kernel, padding="circular")
        case SuperResolutionOperator(factor=factor):
            if height % factor or width % factor:
                sides = f"{height} × {width} pixels"
                raise OcmError(f"factor: {factor} does not divide the sides of {sides}")
            size = (channels, height, width)
            return physics.Downsampling(size, "bilinear", factor, padding="circular")
    return physics.Denoising()


def noise_of(physics: Any, sigma: float | None) -> float:
    """Return σ, by default that of the operator's own noise model."""
    if sigma is not None:
        return float(sigma)
    model = getattr(physics, "noise_model", None)
    found = getattr(model, "sigma", None)
    if (
        type(model).__name__ != "GaussianNoise"
        or found is None
        or torch.as_tensor(found).numel() != 1
    ):
        said = f"the operator's noise model is {type(model).__name__}"
        raise OcmError(f"sigma: {said}, and no GaussianNoise of one sigma; give sigma")
    return float(found)


def _mask(operator: InpaintingOperator, height: int, width: int) -> torch.Tensor:
    """Return 1 for pixels that are known; of so many, the share is as near as can be."""
    places = stream(Stream.MASK, operator.seed).permutation(height * width)
    known = torch.ones(height * width)
    known[torch.from_numpy(places[: round(operator.missing * len(places))])] = 0.0
    return known.view(1, height, width)


def import_deepinv() -> Any:
    """Import deepinv; with stand-ins for torchvision where that is not installed."""
    if "deepinv" in sys.modules or find_spec(MISSING) is not None:
        return import_module("deepinv")
    finder = _StandIns()
    sys.meta_path.append(finder)
    try:
        return import_module("deepinv")
    finally:
        sys.meta_path.remove(finder)
        for name in [n for n in sys.modules if n.partition(".")[0] == MISSING]:
            del sys.modules[name]


class _StandIn(ModuleType):
    """A module of which every name is a class that cannot be used."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)

        def refuse(self: Any, *args: Any, **options: Any) -> None:
            raise OcmError(f"{MISSING} is not installed, and deepinv's `{name}` needs it")

        return type(name, (), {"__init__": refuse, "BILINEAR": None, "NEAREST": None})


class _StandIns(MetaPathFinder, Loader):
    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if fullname.partition(".")[0] != MISSING:
            return None
        return ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _StandIn(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        pass
