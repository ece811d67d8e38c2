"""Batches need as many items as they have rows."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from ocm_core.artifacts import training_set
from ocm_core.errors import OcmError


def test_fewer_images_than_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training_set, "open_split", lambda job, split: range(5))
    job = SimpleNamespace(stage="heads", experiment=SimpleNamespace(name="mine"))
    with pytest.raises(OcmError, match=r"train\.heads\.batch_size: 8, and there are 5 items.*=5`"):
        training_set.open_training_set(job, 8)
