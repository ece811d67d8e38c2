"""torchvision beside a CPU build of torch.

Package indices carry torchvision with CUDA kernels only, whose library does not load beside a CPU
build of torch; `import torchvision` then fails, because it describes the shapes of two operators of
that library. clean-fid and diffusers import torchvision without using either. Declared here without
a kernel, they make it importable, and a call still fails.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module

from torch.library import Library

_MISSING = "operator torchvision::nms does not exist"
_BOXES = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"


def make_torchvision_importable() -> None:
    """Call this before importing what imports torchvision; it does nothing where none is needed."""
    try:
        import_module("torchvision")
    except RuntimeError as error:
        if _MISSING not in str(error):
            raise
        _declared_operators()
        import_module("torchvision")


@cache  # a library's operators live as long as the object
def _declared_operators() -> Library:
    library = Library("torchvision", "FRAGMENT")  # type: ignore[no-untyped-call]
    for operator in ("nms", "qnms"):
        library.define(operator + _BOXES)  # type: ignore[no-untyped-call]
    return library
