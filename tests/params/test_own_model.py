"""A model of one's own and its images must fit each other, before anything is computed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ocm_core.errors import OcmError
from ocm_core.params.compose import compose
from ocm_core.schema.experiment import DiffusersNetworkParams, Experiment, SchedulerSchedule
from tests.networks.diffusers_cases import PLAIN, model

# after the library, which makes torchvision importable where it is not
from diffusers import DDPMPipeline, DDPMScheduler  # isort: skip

GREY = PLAIN | {"in_channels": 1, "out_channels": 1}


def composed(folder: Path, changes: dict[str, Any], **scheduler: Any) -> Experiment:
    DDPMPipeline(model(GREY | changes), DDPMScheduler(**scheduler)).save_pretrained(folder)
    chosen = ["network=diffusers", "schedule=model", "methods=paper", "head=simple"]
    smoke = [f"{group}=smoke" for group in ("train", "sample", "evaluate")]
    return compose("digits", [*chosen, *smoke, f"+network.path={folder}"])


def test_what_the_folder_says_is_resolved(tmp_path: Path) -> None:
    found = composed(tmp_path, {}, prediction_type="sample", rescale_betas_zero_snr=True)
    assert isinstance(found.network, DiffusersNetworkParams)
    assert isinstance(found.schedule, SchedulerSchedule)
    assert (found.network.prediction, found.schedule.steps) == ("sample", 999)
    assert found.network.config["block_out_channels"] == [8, 16]
    assert len(found.network.digest) == 64 and not found.network.conditional


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sample_size": 16}, r"data: items of shape \(1, 8, 8\), .* takes \(1, 16, 16\)"),
        ({"in_channels": 3, "out_channels": 3}, r"takes \(3, 8, 8\); give the data set"),
        ({"num_class_embeds": 4}, "data: 10 classes, and the model .* takes labels of 4"),
    ],
)
def test_images_that_do_not_fit_are_refused(
    changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(OcmError, match=message):
        composed(tmp_path, changes)
