"""A model of one's own and its images must fit each other, before anything is computed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from diffusers import DDPMPipeline, DDPMScheduler

from ocm_core.errors import OcmError
from ocm_core.params.compose import compose
from ocm_core.schema.experiment import DiffusersNetworkParams, Experiment, SchedulerSchedule
from tests.networks.diffusers_cases import PLAIN, model

GREY = PLAIN | {"in_channels": 1, "out_channels": 1}
OVERLAY = """# @package _global_
defaults: [/base: images]
data: {{ kind: digits }}
network: {{ family: diffusers, path: {folder} }}
schedule: {{ kind: model }}
train: {{ score: null }}
report: {{ title: Own, summary: Own. }}
"""


@pytest.fixture
def composed(project: Path, tmp_path: Path) -> Callable[..., Experiment]:
    def build(changes: dict[str, Any], **scheduler: Any) -> Experiment:
        folder = tmp_path / "model"
        DDPMPipeline(model(GREY | changes), DDPMScheduler(**scheduler)).save_pretrained(folder)
        (project / "experiment/own.yaml").write_text(OVERLAY.format(folder=folder))
        return compose("own")

    return build


def test_what_the_folder_says_is_composed(composed: Callable[..., Experiment]) -> None:
    experiment = composed({}, prediction_type="sample", rescale_betas_zero_snr=True)
    assert isinstance(experiment.network, DiffusersNetworkParams)
    assert isinstance(experiment.schedule, SchedulerSchedule)
    assert (experiment.network.prediction, experiment.schedule.steps) == ("sample", 999)
    assert experiment.network.config["block_out_channels"] == [8, 16]
    assert len(experiment.network.digest) == 64 and not experiment.network.conditional
    assert compose("own_smoke").sample.count == 8


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sample_size": 16}, r"data: items of shape \(1, 8, 8\), .* takes \(1, 16, 16\)"),
        ({"in_channels": 3, "out_channels": 3}, r"takes \(3, 8, 8\); give the data set"),
        ({"num_class_embeds": 4}, "data: 10 classes, and the model .* takes labels of 4"),
    ],
)
def test_images_that_do_not_fit_are_refused(
    changes: dict[str, Any], message: str, composed: Callable[..., Experiment]
) -> None:
    with pytest.raises(OcmError, match=message):
        composed(changes)


def test_a_folder_that_is_not_there(project: Path) -> None:
    said = r"own\.yaml: network\.path: None; expected the folder"
    for folder, message in {"nowhere": "nowhere", "null": said}.items():
        (project / "experiment/own.yaml").write_text(OVERLAY.format(folder=folder))
        with pytest.raises(OcmError, match=message):
            compose("own")
