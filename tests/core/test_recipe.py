"""Recipes follow from parameters alone; a new kernel is one file."""

from __future__ import annotations

import re
from typing import Literal, get_args

import pytest
import torch

from ocm_core import covariance
from ocm_core.cells import Cell, cells
from ocm_core.covariance.interface import Clip, predict
from ocm_core.diffusion import kernels
from ocm_core.diffusion.denoiser import Denoiser
from ocm_core.diffusion.gaussian import pixel_sigma_limit
from ocm_core.diffusion.guidance import Guidance
from ocm_core.diffusion.kernels import Kernel
from ocm_core.diffusion.kernels.ddim import Ddim
from ocm_core.diffusion.kernels.ddpm import Ddpm
from ocm_core.errors import OcmError
from ocm_core.params.compose import compose
from ocm_core.rng.noise import SampleNoise
from ocm_core.sampling import modules_of
from ocm_core.sampling.recipe import Recipe, Stepper, of_cell
from ocm_core.schema.experiment import Experiment, SamplerParams
from ocm_core.schema.timesteps import (
    DitTimesteps,
    EvenTimesteps,
    ListedTimesteps,
    OptimalTimesteps,
    PowerTimesteps,
    QuadraticTimesteps,
    TimestepsParams,
)
from ocm_core.stages import likelihood
from ocm_core.stages._networks import new_denoiser, new_score

CHOICES = {
    "even": EvenTimesteps(),
    "quadratic": QuadraticTimesteps(),
    "dit": DitTimesteps(),
    "power, exponent: 2.0, first: 10": PowerTimesteps(exponent=2.0, first=10),
    "listed, values: [[9], [1, 9]]": ListedTimesteps(values=[[9], [1, 9]]),
    "optimal, of: ocm": OptimalTimesteps(of="ocm"),
}


def recipe_of(experiment: Experiment, **wanted: object) -> Recipe:
    """The recipe of the first cell with these coordinates."""
    recipe = of_cell(experiment, cell_of(experiment, **wanted))
    assert isinstance(recipe, Recipe)
    return recipe


def cell_of(experiment: Experiment, **wanted: object) -> Cell:
    all_cells = cells(experiment)
    return next(c for c in all_cells if all(getattr(c, k) == v for k, v in wanted.items()))


def toy_denoiser(experiment: Experiment) -> Denoiser:
    return new_denoiser(experiment, new_score(experiment, "exact"))


def test_no_rule_of_timesteps_is_left_out() -> None:
    union, _ = get_args(TimestepsParams)
    assert {*get_args(union)} == {type(rule) for rule in CHOICES.values()}


@pytest.mark.parametrize("text", CHOICES)
def test_every_rule_of_timesteps_can_be_chosen(text: str) -> None:
    overrides = [
        f"++sample.samplers.ddim.timesteps={{kind: {text}}}",
        f"++evaluate.likelihood.timesteps.even={{kind: {text}}}",
        "evaluate.likelihood.nfe=[1,2]",
        "evaluate.likelihood.nfe_by_method={rademacher_100: [1]}",
        "sample.samplers.ddim.grids=[{nfe: [1, 2], guidance: [1.0]}]",
    ]
    experiment = compose("digits", overrides)
    sampler, settings = experiment.sample.samplers["ddim"], likelihood.STAGE.settings(experiment)
    assert isinstance(sampler, SamplerParams) and sampler.timesteps == CHOICES[text]
    assert settings.timesteps["even"] == CHOICES[text]


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("sample.samplers.ddim.timesteps=even", "sample.samplers.ddim.timesteps"),
        ("sample.samplers.ddim.timesteps.kind=evne", "sample.samplers.ddim.timesteps"),
        ("sample.samplers.ddim.timesteps={kind: power}", "timesteps.exponent: missing"),
        (
            "++sample.samplers.ddim.timesteps={kind: power, exponent: 2.0, first: 1000}",
            "first: 1000; expected a timestep below schedule.steps = 1000",
        ),
        (
            "++sample.samplers.ddim.timesteps={kind: listed, values: [[3, 2]]}",
            "[3, 2]; expected ascending timesteps up to schedule.steps = 1000",
        ),
        (
            "++sample.samplers.ddim.timesteps={kind: listed, values: [[3, 5]]}",
            "none of the lists has 5 timesteps; add one",
        ),
        (
            "sample.samplers.ddim.timesteps.kind=optimal",
            "train.timesteps.methods: 'delta' is unknown",
        ),
        (
            "++evaluate.likelihood.timesteps.even={kind: optimal, of: rademacher_100}",
            "train.timesteps.methods: 'rademacher_100' is unknown",
        ),
        ("train.timesteps=null", "'optimal' needs train.timesteps, which is null"),
        ("train.timesteps.points=1001", "train.timesteps.points: 1001 is more than"),
        ("train.timesteps.methods=[ocm_relative, delta]", "'delta' is not defined for ddpm"),
        ("train.timesteps.methods=[ocn]", "train.timesteps.methods: 'ocn' is unknown"),
        ("sample.samplers.ddim.kind=ddmi", "sample.samplers.ddim.kind: 'ddmi' is unknown"),
        ("+sample.samplers.ddim.eta=2.0", "sample.samplers.ddim.eta: input should be less than"),
        (
            "+sample.samplers.ddpm.eta=0.5",
            "ddpm.eta: extra inputs are not permitted; the options of ddpm are: none",
        ),
    ],
)
def test_an_impossible_recipe_is_refused_with_its_key(override: str, message: str) -> None:
    with pytest.raises(OcmError, match=re.escape(message)):
        compose("digits", [override])


@pytest.mark.parametrize(
    ("sampler", "overrides", "kernel"),
    [("ddpm", [], Ddpm()), ("ddim", [], Ddim(eta=0.0)), ("ddim", ["eta=0.5"], Ddim(eta=0.5))],
)
def test_the_kernel_of_a_cell(sampler: str, overrides: list[str], kernel: Kernel) -> None:
    asked = [f"+sample.samplers.{sampler}.{override}" for override in overrides]
    assert recipe_of(compose("toy_mog9", asked), sampler=sampler).kernel == kernel


@pytest.mark.parametrize(
    ("sampler", "method", "limit"),
    [
        ("ddpm", "beta", None),
        ("ddpm", "beta_tilde", None),
        ("ddim", "delta", None),
        ("ddpm", "analytic", 2.0),
        ("ddpm", "ocm", 2.0),
        ("ddim", "ocm", 1.0),
    ],
)
def test_the_limit_of_a_cell_is_for_estimated_variances(
    sampler: str, method: str, limit: float | None
) -> None:
    recipe = recipe_of(compose("cifar10_ls"), sampler=sampler, method=method)
    assert recipe.final_sigma == (None if limit is None else pixel_sigma_limit(limit))


def test_all_parameters_reach_the_recipe() -> None:
    """The limit of σ is in grey levels of the data, of which `digits` have 17."""
    changes = {"+": ["order=2", "covariance_scale=0.5"], "": ["clip_final_sigma=1.5"]}
    asked = [f"{new}sample.samplers.ddpm.{key}" for new, keys in changes.items() for key in keys]
    experiment = compose("digits", [*asked, "sample.clip.covariance=0.8"])
    recipe = recipe_of(experiment, sampler="ddpm", method="ocm", nfe=5)
    assert (recipe.order, recipe.covariance_scale) == (2, 0.5)
    assert recipe.clip == Clip(x0=1.0, c_min=0.0, c_max=0.8)
    assert recipe.final_sigma == pixel_sigma_limit(1.5, levels=17)
    assert recipe.timesteps == (1, 251, 500, 750, 1000) and recipe.draws == 5


@pytest.mark.parametrize("kind", ["guided", "conditional"])
def test_the_guidance_of_a_cell(kind: Literal["guided", "conditional"]) -> None:
    experiment = compose("imagenet256", [f"sample.guidance.covariance={kind}"])
    assert recipe_of(experiment, guidance=1.75).guidance == Guidance(1.75, 3, kind)


def test_guidance_of_the_first_three_channels() -> None:
    assert compose("imagenet256").sample.guidance.guided_channels == 3
    assert compose("digits").sample.guidance.guided_channels is None


def test_steps_one_by_one_are_those_of_draw() -> None:
    experiment = compose("toy_mog9")
    model, method = toy_denoiser(experiment), covariance.build("exact_diag")
    recipe = Recipe((1, 200, 600, 1000), method, Ddpm(), order=3)
    noise = SampleNoise(0, range(5), (2,))
    stepper, x = Stepper(recipe, model.schedule), noise.normal()
    with pytest.raises(OcmError, match="a step from timestep 600: the next one is the step from"):
        stepper.step(predict(model, [method], x, 600, None), 600, noise)
    for t in reversed(recipe.timesteps):
        x = stepper.step(predict(model, [method], x, t, None), t, noise)
    assert torch.equal(x, recipe.draw(model, SampleNoise(0, range(5), (2,))).x)
    with pytest.raises(OcmError, match="all are taken"):
        stepper.step(predict(model, [method], x, 1, None), 1, noise)


def test_every_kernel_is_named_like_its_file() -> None:
    assert {kind: kernels.build(kind).name for kind in kernels.available()} == {
        "ddim": "ddim",
        "ddpm": "ddpm",
    }


def test_samplers_name_the_modules_that_they_choose() -> None:
    samplers = compose("digits").sample.samplers
    kernel, sampling = "ocm_core.diffusion.kernels", "ocm_core.sampling"
    assert modules_of(samplers["ddpm"]) == [f"{kernel}.ddpm"]
    preset = next(s for s in samplers.values() if s.kind == "preset" and s.name == "quality")
    assert modules_of(preset) == [f"{kernel}.ddim", f"{sampling}.presets"]
    solver = next(s for s in samplers.values() if s.kind == "diffusers")
    assert modules_of(solver) == [f"{sampling}.diffusers_solver"]
