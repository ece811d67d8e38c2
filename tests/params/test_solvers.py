"""Schedulers of diffusers that cannot sample an experiment are refused before it runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ocm_core.errors import OcmError
from ocm_core.params.compose import compose
from ocm_core.sampling.checks import check_solvers
from tests.params.conftest import ROOT

NONE = "+methods.none={}"


def solver(scheduler: str, options: str = "", nfe: str = "5", label: str = "baseline") -> str:
    return (
        f"+sample.samplers.{label}={{kind: diffusers, scheduler: {scheduler}, "
        f"options: {{{options}}}, grids: [{{nfe: [{nfe}]}}]}}"
    )


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (("UniPCScheduler",), "scheduler: 'UniPCScheduler' is unknown; did you mean 'UniPCMulti"),
        (("FlowMatchEulerDiscreteScheduler",), "is not for networks that predict the noise"),
        (("ScoreSdeVeScheduler",), "is not for networks that predict the noise"),
        (("DDIMScheduler", "prediction_type: v_prediction"), "networks predict the noise"),
        (("UniPCMultistepScheduler", "use_flow_sigmas: true"), "no flow-matching models"),
        (("DDIMScheduler", "beta_start: 0.1"), "the betas come from `schedule`; leave it out"),
        (("DDIMScheduler", "clip_smple: true"), "'clip_smple' is unknown; did you mean 'clip_s"),
        (("UniPCMultistepScheduler", "solver_type: bh3"), "fails with them: bh3 is not impl"),
        (("DDPMScheduler", "variance_type: learned"), "options: DDPMScheduler fails with them"),
        (("HeunDiscreteScheduler", "", "10"), "10 evaluations of the network; the nearest that it"),
        (("HeunDiscreteScheduler", "", "10"), "the nearest that it can: 9, 11"),
        (("PNDMScheduler", "", "5"), "the nearest that it can: 13"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_key(asked: tuple[str, ...], said: str) -> None:
    with pytest.raises(OcmError, match=re.escape(said)) as refused:
        check_solvers(compose("toy_mog9", [NONE, solver(*asked)]))
    assert "toy_mog9: sample.samplers.baseline." in str(refused.value)


def test_a_solver_needs_the_method_none_and_has_no_other() -> None:
    ddim = solver("DDIMScheduler")
    for said, overrides in {
        "baseline: a solver has no covariance; add the method `none:`": [ddim],
        "baseline.methods.0: 'ocm' is unknown; valid: none": [
            NONE,
            ddim[:-1] + ", methods: [ocm]}",
        ],
        "'none' is defined for solvers only": [NONE, "sample.samplers.ddpm.methods=[none]"],
    }.items():
        with pytest.raises(OcmError, match=re.escape(said)):
            compose("toy_mog9", overrides)


def test_a_limit_that_diffusers_has_not_is_refused() -> None:
    with pytest.raises(OcmError, match=r"sample.clip.x0 = 0.5: diffusers clamps to ±1"):
        check_solvers(compose("digits", [solver("DDIMScheduler"), "sample.clip.x0=0.5"]))


@pytest.mark.parametrize(
    ("preset", "methods", "said"),
    [
        ("qualty", "delta", "baseline.name: 'qualty' is unknown; did you mean 'quality'"),
        ("quality", "beta", "baseline (nfe = 5).methods: 'beta' is defined for ddpm only"),
        ("likelihood", "rademacher_100", "train.timesteps.methods: 'rademacher_100' is unknown"),
    ],
)
def test_a_preset_that_cannot_be_is_refused(preset: str, methods: str, said: str) -> None:
    asked = (
        f"+sample.samplers.baseline={{kind: preset, name: {preset}, methods: [{methods}], "
        "grids: [{nfe: [5]}]}"
    )
    with pytest.raises(OcmError, match=re.escape(said)):
        compose("digits", [asked])


def test_the_baselines_of_the_document_can_be_composed(project: Path) -> None:
    (block,) = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs/solvers.md").read_text(), re.DOTALL)
    (project / "experiment/baselines.yaml").write_text(block)
    samplers = compose("baselines").sample.samplers
    baselines = ["unipc", "heun", "dpmpp_2m_sde"]
    assert [*samplers] == ["ddpm", "ddim", *baselines, "quality"]
    assert {samplers[label].kind for label in baselines} == {"diffusers"}
    assert all(samplers[label].nfe == [5, 9] for label in [*baselines, "quality"])
