"""Images as feature spaces and pages take them: uint8, whatever the number of grey levels."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import UInt8
from torch import Tensor

from ocm_core.datasets.interface import Split


@dataclass(frozen=True)
class EightBitSplit:
    """A split of a data set, read a slice at a time."""

    split: Split
    levels: int

    def __len__(self) -> int:
        return len(self.split)

    def __getitem__(self, rows: slice) -> UInt8[Tensor, "n channel height width"]:
        values = self.split.read(range(*rows.indices(len(self.split))))
        return eight_bit(torch.from_numpy(values).double(), self.levels)


def eight_bit(values: Tensor, levels: int) -> UInt8[Tensor, "n channel height width"]:
    """Grey levels 0 … levels - 1, spread over 0 … 255."""
    return (values * (255 / (levels - 1))).round().to(torch.uint8)
