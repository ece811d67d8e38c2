"""Single precision on a GPU: TF32, unless full float32 is asked for; elsewhere the same."""

from typing import Literal

import torch

Precision = Literal["float32", "tf32", "bfloat16"]


def set_precision(precision: Precision = "tf32") -> torch.dtype:
    """Set the precision of this process, and return the type that a network is to be run in."""
    allowed = precision != "float32"
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = allowed
    return torch.bfloat16 if precision == "bfloat16" else torch.float32
