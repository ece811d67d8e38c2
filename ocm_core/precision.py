"""Single precision on a GPU: TF32, unless full float32 is asked for.

On a CPU, and on a GPU without TF32, both are the same.
"""

from __future__ import annotations

from typing import Literal

import torch

Precision = Literal["float32", "tf32", "bfloat16"]


def set_precision(precision: Precision = "tf32") -> torch.dtype:
    """Set the precision of matrix products and convolutions for the whole process.

    Return the type that a network is to be run in; weights and heads stay in float32.
    """
    allowed = precision != "float32"
    torch.backends.cuda.matmul.allow_tf32 = allowed
    torch.backends.cudnn.allow_tf32 = allowed
    return torch.bfloat16 if precision == "bfloat16" else torch.float32
