"""What the stage that trains heads hands to the training loop."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from ocm_core.artifacts.score import new_denoiser, new_score
from ocm_core.artifacts.training_set import TrainingSet
from ocm_core.params.compose import compose
from ocm_core.pipeline.job import Job
from ocm_core.stages import heads
from ocm_core.training.batches import InMemory


class BegunError(Exception):
    """Training has been asked for."""


@pytest.mark.parametrize("cdf", ["exact", "tanh"])
def test_the_bins_of_the_first_step_are_integrated_as_asked(
    cdf: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = compose("digits", [f"train.heads.cdf={cdf}"])
    experiment = whole.model_copy(update={"methods": {"iddpm": whole.methods["iddpm"]}})
    denoiser = new_denoiser(experiment, new_score(experiment, "learned"))
    images = TrainingSet(InMemory(torch.zeros(4, 1, 8, 8)), 1.0)
    asked: list[Any] = []

    def fit(objective: Any, *_: Any, **__: Any) -> None:
        asked.append(objective)
        raise BegunError

    monkeypatch.setattr(heads, "open_training_set", lambda job, batch_size: images)
    monkeypatch.setattr(heads, "load_denoiser", lambda job, score: denoiser)
    monkeypatch.setattr(heads, "fit", fit)
    with pytest.raises(BegunError):
        heads.run(
            Job(experiment, "heads", "learned", {}, tmp_path, tmp_path, requested_device="cpu")
        )
    assert (asked[0].decoder.cdf, asked[0].decoder.levels) == (cdf, 17)
