"""Stages find the images and the networks of a test."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from ocm_core.diffusion.denoiser import Denoiser


@pytest.fixture
def stored(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any, torch.Tensor, Denoiser], None]:
    """Let a stage find these test images and this denoiser."""

    def put(stage: Any, data: torch.Tensor, denoiser: Denoiser) -> None:
        load = "load_denoiser" if hasattr(stage, "load_denoiser") else "load_score"
        monkeypatch.setattr(stage, load, lambda *_: denoiser)
        monkeypatch.setattr(stage, "open_split", lambda job, split: data)
        monkeypatch.setattr(stage, "read_rows", lambda job, split, rows, _: (data[rows], None))

    return put
