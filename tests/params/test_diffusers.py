"""Models and schedulers of diffusers that do not fit an experiment are refused before it runs."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from diffusers import DDPMPipeline, DDPMScheduler

from ocm_core.errors import OcmError
from ocm_core.params.compose import compose
from ocm_core.sampling.checks import check_solvers
from ocm_core.schema.experiment import DiffusersNetworkParams, Experiment, SchedulerSchedule
from tests.networks.diffusers_cases import PLAIN, model
from tests.params.conftest import ROOT

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


NONE = "+methods.none={}"


def solver(scheduler: str, options: str = "", nfe: str = "5") -> str:
    how = f"scheduler: {scheduler}, options: {{{options}}}, grids: [{{nfe: [{nfe}]}}]"
    return f"+sample.samplers.baseline={{kind: diffusers, {how}}}"


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (("UniPCScheduler",), "scheduler: 'UniPCScheduler' is unknown; did you mean 'UniPCMulti"),
        (("FlowMatchEulerDiscreteScheduler",), "is not for networks that predict the noise"),
        (("ScoreSdeVeScheduler",), "is not for networks that predict the noise"),
        (("DDIMScheduler", "prediction_type: v_prediction"), "networks predict the noise"),
        (("UniPCMultistepScheduler", "use_flow_sigmas: true"), "they come from `schedule`"),
        (("DDIMScheduler", "beta_start: 0.1"), "the betas come from `schedule`; leave it out"),
        (("DDIMScheduler", "clip_smple: true"), "'clip_smple' is unknown; did you mean 'clip_s"),
        (("UniPCMultistepScheduler", "solver_type: bh3"), "fails with them: bh3 is not impl"),
        (("DDPMScheduler", "variance_type: learned"), "options: DDPMScheduler fails with them"),
        (("HeunDiscreteScheduler", "", "10"), "of the network; the nearest that it can: 9, 11"),
        (("PNDMScheduler", "", "5"), "the nearest that it can: 13"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_key(asked: tuple[str, ...], said: str) -> None:
    with pytest.raises(OcmError, match=re.escape(said)) as refused:
        check_solvers(compose("toy_mog9", [NONE, solver(*asked)]))
    assert "toy_mog9: sample.samplers.baseline." in str(refused.value)


def test_a_solver_needs_the_method_none_and_the_limits_of_diffusers() -> None:
    ddim = solver("DDIMScheduler")
    for said, overrides in {
        "baseline: a solver has no covariance; add the method `none:`": [ddim],
        "methods.0: 'ocm' is unknown; valid: none": [NONE, ddim[:-1] + ", methods: [ocm]}"],
        "'none' is defined for solvers only": [NONE, "sample.samplers.ddpm.methods=[none]"],
    }.items():
        with pytest.raises(OcmError, match=re.escape(said)):
            compose("toy_mog9", overrides)
    with pytest.raises(OcmError, match=r"sample.clip.x0 = 0.5: diffusers clamps to ±1"):
        check_solvers(compose("digits", [ddim, "sample.clip.x0=0.5"]))


def test_the_baselines_of_the_document_can_be_composed(project: Path) -> None:
    (block,) = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs/solvers.md").read_text(), re.DOTALL)
    (project / "experiment/baselines.yaml").write_text(block)
    samplers = compose("baselines").sample.samplers
    baselines = ["unipc", "heun", "dpmpp_2m_sde"]
    assert [*samplers] == ["ddpm", "ddim", *baselines, "quality", "ipndm"]
    assert {samplers[label].kind for label in baselines} == {"diffusers"}
    assert all(samplers[label].nfe == [5, 9] for label in [*baselines, "quality", "ipndm"])
