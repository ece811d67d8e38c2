"""Images at the size that a pretrained network expects, by clean-fid's resizer.

It antialiases and does not round in between; other libraries resize differently, which changes FID.
"""

from __future__ import annotations

import numpy as np
import torch
from cleanfid.resize import make_resizer
from jaxtyping import Float32
from torch import Tensor

from ocm_core.ahead import moved, pinned
from ocm_core.features.interface import UInt8Images


def resized(
    images: UInt8Images, side: int, device: str = "cpu"
) -> Float32[Tensor, "n 3 side side"]:
    """Bicubic, grey repeated to RGB, values still 0 … 255; resized on the host."""
    resize = make_resizer("PIL", False, "bicubic", (side, side))
    colour = images.expand(-1, 3, -1, -1).permute(0, 2, 3, 1).cpu().numpy()
    done = torch.from_numpy(np.stack([resize(image) for image in colour])).permute(0, 3, 1, 2)
    return moved(pinned(done, device), device)
