"""The images that FID compares with."""

from __future__ import annotations

import torch

from ocm_core.stages.reference import First


def test_the_first_images_of_a_set_are_a_set() -> None:
    images = torch.arange(10, dtype=torch.uint8).reshape(10, 1, 1, 1)
    first = First(images, 4)
    assert len(first) == 4
    assert first[2:9].flatten().tolist() == [2, 3]
    assert first[0:3].flatten().tolist() == [0, 1, 2]
