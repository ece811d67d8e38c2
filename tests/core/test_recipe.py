"""Recipes follow from parameters alone, or from a preset at any budget, on any schedule."""

from typing import Literal, get_args

import pytest
import torch

from ocm_core import covariance
from ocm_core.cells import cells
from ocm_core.covariance.interface import Clip, check_defined, predict
from ocm_core.diffusion import kernels
from ocm_core.diffusion import schedule as schedules
from ocm_core.diffusion import timesteps as rules
from ocm_core.diffusion.gaussian import pixel_sigma_limit
from ocm_core.diffusion.guidance import Guidance
from ocm_core.diffusion.kernels import Kernel
from ocm_core.errors import OcmError
from ocm_core.networks.of_experiment import new_denoiser, new_score
from ocm_core.params.compose import compose
from ocm_core.rng.noise import SampleNoise
from ocm_core.sampling import modules_of
from ocm_core.sampling.presets import PRESETS, Preset, preset_named
from ocm_core.sampling.recipe import Recipe, Stepper, of_cell
from ocm_core.schema import timesteps as params
from ocm_core.schema.experiment import Experiment, SamplerParams
from ocm_core.stages import likelihood
from tests.core.doubles import Ddim, Ddpm

CHOICES = {
    "even": params.NamedTimesteps(),
    "quadratic": params.NamedTimesteps(kind="quadratic"),
    "dit": params.NamedTimesteps(kind="dit"),
    "power, exponent: 2.0, first: 10": params.PowerTimesteps(exponent=2.0, first=10),
    "listed, values: [[9], [1, 9]]": params.ListedTimesteps(values=[[9], [1, 9]]),
    "optimal, of: ocm": params.OptimalTimesteps(of="ocm"),
}


def recipe_of(experiment: Experiment, **wanted: object) -> Recipe:
    """The recipe of the first cell with these coordinates."""
    found = (c for c in cells(experiment) if wanted.items() <= vars(c).items())
    recipe = of_cell(experiment, next(found))
    assert isinstance(recipe, Recipe)
    return recipe


def test_no_rule_of_timesteps_is_left_out() -> None:
    union, _ = get_args(params.TimestepsParams)
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
    ("sampler", "overrides", "kernel"),
    [("ddpm", [], Ddpm()), ("ddim", [], Ddim(eta=0.0)), ("ddim", ["eta=0.5"], Ddim(eta=0.5))],
)
def test_the_kernel_of_a_cell(sampler: str, overrides: list[str], kernel: Kernel) -> None:
    asked = [f"+sample.samplers.{sampler}.{override}" for override in overrides]
    assert recipe_of(compose("toy_mog9", asked), sampler=sampler).kernel == kernel


def test_the_limit_of_a_cell_is_for_estimated_variances() -> None:
    limits = {"ddpm beta": None, "ddpm beta_tilde": None, "ddim delta": None}
    limits |= {"ddpm analytic": 2.0, "ddpm ocm": 2.0, "ddim ocm": 1.0}
    experiment = compose("cifar10_ls")
    for cell, limit in limits.items():
        sampler, method = cell.split()
        recipe = recipe_of(experiment, sampler=sampler, method=method)
        assert recipe.final_sigma == (limit and pixel_sigma_limit(limit)), cell


def test_all_parameters_reach_the_recipe() -> None:
    changes = {"+": ["order=2", "posterior_factor=0.5"], "": ["clip_final_sigma=1.5"]}
    asked = [f"{new}sample.samplers.ddpm.{key}" for new, keys in changes.items() for key in keys]
    experiment = compose("digits", [*asked, "sample.clip.covariance=0.8"])
    recipe = recipe_of(experiment, sampler="ddpm", method="ocm", nfe=5)
    assert (recipe.order, recipe.posterior_factor) == (2, 0.5)
    assert recipe.clip == Clip(x0=1.0, c_min=0.0, c_max=0.8)
    assert recipe.final_sigma == pixel_sigma_limit(1.5, levels=17)
    assert recipe.timesteps == (1, 251, 500, 750, 1000) and recipe.draws == 5


@pytest.mark.parametrize("kind", ["guided", "conditional"])
def test_guidance_is_of_three_channels(kind: Literal["guided", "conditional"]) -> None:
    experiment = compose("imagenet256", [f"sample.guidance.covariance={kind}"])
    assert recipe_of(experiment, guidance=1.75).guidance == Guidance(1.75, 3, kind)
    assert compose("digits").sample.guidance.guided_channels is None


def test_steps_one_by_one_are_those_of_draw() -> None:
    experiment = compose("toy_mog9")
    model = new_denoiser(experiment, new_score(experiment, "exact"))
    method = covariance.build("exact_diag")
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


def test_samplers_name_the_modules_that_they_choose_and_kernels_are_named_like_theirs() -> None:
    found = {kind: kernels.build(kind).name for kind in kernels.available()}
    assert found == {kind: kind for kind in ("cps", "ddim", "ddpm", "flow_grpo", "precise")}
    samplers = compose("digits").sample.samplers
    kernel, sampling = "ocm_core.diffusion.kernels", "ocm_core.sampling"
    assert modules_of(samplers["ddpm"]) == [f"{kernel}.ddpm"]
    preset = next(s for s in samplers.values() if s.kind == "preset" and s.name == "quality")
    assert modules_of(preset) == [f"{kernel}.ddim", f"{sampling}.presets"]
    solver = next(s for s in samplers.values() if s.kind == "diffusers")
    assert modules_of(solver) == [f"{sampling}.diffusers_solver"]


SCHEDULES = [schedules.linear(1000), schedules.cosine(1000), schedules.cosine(4000)]


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_is_defined_at_every_budget(name: str) -> None:
    preset = preset_named(name)
    method = covariance.build(preset.method)
    for nfe in range(1, 201):
        recipe = preset.recipe(nfe)
        check_defined(method, kernels.build(recipe.kind, **recipe.options))
        if isinstance(recipe.timesteps, params.OptimalTimesteps):
            continue
        for schedule in SCHEDULES:
            timesteps = rules.build(recipe.timesteps, schedule, nfe)
            assert len(timesteps) == nfe and timesteps[-1] == schedule.steps


def test_an_entry_holds_from_its_number_of_evaluations_on() -> None:
    recipes = preset_named("quality").recipes
    preset = Preset("delta", {4: recipes[1], 6: recipes[6]})
    expected = {1: 1, 4: 1, 5: 1, 6: 6, 7: 6}
    assert {k: preset.recipe(k) for k in expected} == {k: recipes[v] for k, v in expected.items()}


@pytest.mark.parametrize("nfe", [5, 7, 10, 15, 20, 25])
def test_quality_wastes_no_evaluation_near_the_data(nfe: int) -> None:
    recipe = preset_named("quality").recipe(nfe)
    assert recipe.order == 3 and preset_named("quality").method == "delta"
    assert rules.build(recipe.timesteps, SCHEDULES[0], nfe)[0] == 70
