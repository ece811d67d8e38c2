"""How a sampler steps is chosen by its parameters alone."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any, Literal, cast, get_args

import pytest

from ocm_core.cells import cells
from ocm_core.covariance.interface import Clip
from ocm_core.diffusion import schedule
from ocm_core.diffusion.denoiser import Denoiser
from ocm_core.diffusion.gaussian import pixel_sigma_limit
from ocm_core.diffusion.guidance import GuidedDenoiser
from ocm_core.diffusion.score_network import ScoreNetwork
from ocm_core.diffusion.transition import Ddim, Ddpm, Kernel
from ocm_core.errors import OcmError
from ocm_core.params.compose import compose
from ocm_core.samplers import cell_sampler
from ocm_core.samplers.cell_sampler import CellSampler, kernel_of
from ocm_core.schema.chains import (
    ChainParams,
    DitChain,
    EvenChain,
    ListChain,
    LogSnrChain,
    OptimalChain,
    PowerChain,
    QuadraticChain,
    StridedChain,
)
from ocm_core.schema.experiment import SamplerParams

CHOICES = {
    "even": EvenChain(),
    "quadratic": QuadraticChain(),
    "strided": StridedChain(),
    "dit": DitChain(),
    "log_snr": LogSnrChain(),
    "power, exponent: 2.0, first: 10": PowerChain(exponent=2.0, first=10),
    "list, timesteps: [[9], [1, 9]]": ListChain(timesteps=[[9], [1, 9]]),
    "optimal, of: ocm": OptimalChain(of="ocm"),
}


def test_no_chain_is_left_out() -> None:
    union, _ = get_args(ChainParams)
    assert {*get_args(union)} == {type(chain) for chain in CHOICES.values()}


@pytest.mark.parametrize("text", CHOICES)
def test_every_chain_can_be_chosen(text: str) -> None:
    grids = "sample.samplers.ddim.grids=[{steps: [1, 2], guidance: [1.0]}]"
    overrides = [
        f"++sample.samplers.ddim.chain={{kind: {text}}}",
        f"++evaluate.likelihood.chains.ddpm={{kind: {text}}}",
        "evaluate.likelihood.steps=[1,2]",
        "evaluate.likelihood.fewer={rademacher_100: [1]}",
        grids,
    ]
    experiment = compose("digits", overrides)
    assert experiment.sample.samplers["ddim"].chain == CHOICES[text]
    assert experiment.evaluate.likelihood is not None
    assert experiment.evaluate.likelihood.chains["ddpm"] == CHOICES[text]


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("sample.samplers.ddim.chain=even", "sample.samplers.ddim.chain"),
        ("sample.samplers.ddim.chain.kind=evne", "sample.samplers.ddim.chain"),
        ("sample.samplers.ddim.chain={kind: power}", "chain.exponent: missing"),
        (
            "++sample.samplers.ddim.chain={kind: power, exponent: 2.0, first: 1000}",
            "first: 1000; expected a timestep below schedule.steps = 1000",
        ),
        (
            "++sample.samplers.ddim.chain={kind: list, timesteps: [[3, 2]]}",
            "[3, 2]; expected ascending timesteps up to schedule.steps = 1000",
        ),
        (
            "++sample.samplers.ddim.chain={kind: list, timesteps: [[3, 5]]}",
            "none of the lists has 5 timesteps; add one",
        ),
        ("sample.samplers.ddim.chain.kind=optimal", "evaluate.chains.methods: 'delta' is unknown"),
        (
            "++evaluate.likelihood.chains.ddpm={kind: optimal, of: rademacher_100}",
            "evaluate.chains.methods: 'rademacher_100' is unknown",
        ),
        ("evaluate.chains=null", "'optimal' needs evaluate.chains, which is null"),
        ("evaluate.chains.points=1001", "evaluate.chains.points: 1001 is more than"),
        ("evaluate.chains.methods=[ocm_relative, delta]", "'delta' is not defined for ddpm"),
        ("evaluate.chains.methods=[ocn]", "evaluate.chains.methods: 'ocn' is unknown"),
    ],
)
def test_a_chain_that_cannot_be_is_refused_with_its_key(override: str, said: str) -> None:
    with pytest.raises(OcmError, match=re.escape(said)):
        compose("digits", [override])


@pytest.mark.parametrize(
    ("sampler", "overrides", "kernel"),
    [
        ("ddpm", [], Ddpm()),
        ("ddim", [], Ddim(0.0)),
        ("ddim", ["eta=0.5"], Ddim(0.5)),
        ("ddim", ["rederive_eps=true"], Ddim(0.0, rederive_eps=True)),
    ],
)
def test_the_kernel_of_a_cell(sampler: str, overrides: list[str], kernel: Kernel) -> None:
    asked = [f"sample.samplers.{sampler}.{override}" for override in overrides]
    experiment = compose("toy_mog9", asked)
    chosen = experiment.sample.samplers[sampler]
    assert isinstance(chosen, SamplerParams) and kernel_of(chosen) == kernel


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
    sampler: str, method: str, limit: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = compose("cifar10_ls")
    asked: dict[str, float | None] = {}
    monkeypatch.setattr(cell_sampler, "ancestral", lambda *_, **options: asked.update(options))
    cell = next(c for c in cells(experiment) if (c.sampler, c.method) == (sampler, method))
    no_network = Denoiser(cast(ScoreNetwork, None), schedule.linear(1000))  # nothing asks it
    CellSampler(experiment, no_network, cell, "cpu").draw(range(1), None)
    assert asked["last_sigma"] == (None if limit is None else pixel_sigma_limit(limit))


def test_what_the_parameters_say_reaches_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit of σ is in grey levels of the data, of which `digits` have 17."""
    walk = {"+": ["order=2", "covariance_scale=0.5"], "": ["last_sigma=1.5"]}
    asked = [f"{new}sample.samplers.ddpm.{key}" for new, keys in walk.items() for key in keys]
    experiment = compose("digits", [*asked, "sample.clip.covariance=0.8"])
    options: dict[str, Any] = {}
    monkeypatch.setattr(cell_sampler, "ancestral", lambda *_, **named: options.update(named))
    cell = next(c for c in cells(experiment) if (c.sampler, c.method) == ("ddpm", "ocm"))
    no_network = Denoiser(cast(ScoreNetwork, None), schedule.linear(1000))
    CellSampler(experiment, no_network, cell, "cpu").draw(range(1), None)
    assert (options["order"], options["covariance_scale"]) == (2, 0.5)
    assert options["clip"] == Clip(x0=1.0, c_min=0.0, c_max=0.8)
    assert options["last_sigma"] == pixel_sigma_limit(1.5, levels=17)


@pytest.mark.parametrize("kind", ["guided", "conditional"])
def test_the_guidance_of_a_cell(
    kind: Literal["guided", "conditional"], monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = compose("imagenet256", [f"sample.guidance.covariance={kind}"])
    models: list[GuidedDenoiser] = []
    monkeypatch.setattr(cell_sampler, "ancestral", lambda model, *_, **__: models.append(model))
    network = cast(ScoreNetwork, SimpleNamespace(null_label=1000))
    cell = next(c for c in cells(experiment) if c.guidance == 1.75)
    denoiser = Denoiser(network, schedule.linear(1000))
    CellSampler(experiment, denoiser, cell, "cpu").draw(range(1), None)
    assert models == [GuidedDenoiser(denoiser, 1.75, 1000, 3, kind)]


def test_guidance_of_the_first_three_channels() -> None:
    assert compose("imagenet256").sample.guidance.guided_channels == 3
    assert compose("digits").sample.guidance.guided_channels is None
