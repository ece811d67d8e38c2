"""Schedulers of diffusers as samplers: the contract that each holds on each kind of experiment."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor

from ocm_core.cells import Cell, cells
from ocm_core.diffusion.denoiser import Denoiser, forward
from ocm_core.diffusion.schedule import linear
from ocm_core.params.compose import compose
from ocm_core.rng.noise import SampleNoise
from ocm_core.sampling.diffusers_solver import SCHEDULERS, DiffusersSolver
from ocm_core.sampling.recipe import class_labels, draw_rows, of_cell
from ocm_core.schema.experiment import Experiment
from ocm_core.stages._networks import new_denoiser, new_score
from tests.core.doubles import EpsModel, Replay, WaveNetwork

from diffusers import schedulers  # isort: skip

SDE: dict[str, Any] = {"algorithm_type": "sde-dpmsolver++"}
SOLVERS: dict[str, tuple[str, dict[str, Any]]] = {
    **{f"their_{name.removesuffix('Scheduler').lower()}": (name, {}) for name in SCHEDULERS},
    "sde_multistep": ("DPMSolverMultistepScheduler", SDE),
    "sde_singlestep": ("DPMSolverSinglestepScheduler", SDE),
}
EVALUATIONS = {"PNDMScheduler": 14, "HeunDiscreteScheduler": 9}  # others: 5
EVALUATIONS |= {"KDPM2DiscreteScheduler": 9, "KDPM2AncestralDiscreteScheduler": 9}
KINDS = {"toy_mog9": 1.0, "digits": 1.0, "mnist_latent": 1.5}  # and their guidance
NOISY = {"sde_multistep", "sde_singlestep", "their_ddpm", "their_eulerancestraldiscrete"}
NOISY |= {"their_kdpm2ancestraldiscrete"}


@cache
def experiment(name: str) -> Experiment:
    """With every solver as a sampler."""
    asked = []
    for label, (scheduler, options) in SOLVERS.items():
        grid = {"nfe": [EVALUATIONS.get(scheduler, 5)], "guidance": [KINDS[name]]}
        asked.append(
            f"+sample.samplers.{label}="
            f"{{kind: diffusers, scheduler: {scheduler}, options: {_hydra(options)},"
            f" grids: [{_hydra(grid)}]}}"
        )
    return compose(name, ["+methods.none={}", *asked])


def _hydra(values: dict[str, Any]) -> str:
    inside = ", ".join(f"{k}: {v!r}" for k, v in values.items())
    return f"{{{inside}}}"


@cache
def denoiser(name: str) -> Denoiser:
    """The exact score of points; images and latents have a network of random weights."""
    whole = experiment(name)
    torch.manual_seed(0)
    network = new_score(whole, whole.network.scores[0])
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.05)
    return new_denoiser(whole, network.eval().requires_grad_(False))


def cell_of(name: str, label: str) -> Cell:
    found = (cell for cell in cells(experiment(name)) if cell.sampler == label)
    return next(found)


def drawn(name: str, label: str, indices: range, **changes: Any) -> Tensor:
    whole, cell, model = experiment(name), cell_of(name, label), replace(denoiser(name), **changes)
    labels = class_labels(model, whole.data.classes, cell.seed, indices)
    return draw_rows(of_cell(whole, cell), model, whole.shape, indices, cell.seed, labels).x


def counting(passes: list[int]) -> Callable[..., Any]:
    def counted(network: Any, x: Tensor, *rest: Any) -> Any:
        passes.append(len(x))
        return forward(network, x, *rest)

    return counted


each_solver = pytest.mark.parametrize("label", SOLVERS)
each_kind = pytest.mark.parametrize("name", KINDS)


@each_kind
@each_solver
def test_evaluations_are_what_the_cell_says(name: str, label: str) -> None:
    passes: list[int] = []
    x = drawn(name, label, range(3), forward=counting(passes))
    cell = cell_of(name, label)
    branches = 2 if cell.guidance != 1.0 else 1
    assert cell.method == "none" and passes == [3 * branches] * cell.nfe
    assert x.shape == (3, *experiment(name).shape) and torch.isfinite(x).all()


@each_kind
@each_solver
def test_a_sample_depends_on_seed_and_index_alone(name: str, label: str) -> None:
    """Not on the batch, nor on torch's generator: a stage that is killed can resume."""
    torch.manual_seed(1)
    whole = drawn(name, label, range(4))
    torch.manual_seed(2)
    part = drawn(name, label, range(2, 4))
    scale = float(whole.abs().max())
    torch.testing.assert_close(part / scale, whole[2:] / scale, atol=1e-4, rtol=0)
    assert not torch.allclose(whole[0], whole[1])


@each_solver
def test_noise_is_drawn_where_the_scheduler_draws_it(label: str) -> None:
    """From our streams, once an evaluation at most; a solver of an ODE asks for none."""
    scheduler, options = SOLVERS[label]
    steps = EVALUATIONS.get(scheduler, 5)
    solver = DiffusersSolver(scheduler, options, linear(1000), steps, 1.0)
    torch.manual_seed(0)
    normals = [torch.randn(2, 3, 4, 4) for _ in range(steps + 1)]
    network = WaveNetwork()
    noise = Replay(normals)
    before = torch.random.get_rng_state()
    model = EpsModel(lambda x, t: network(x, torch.full((2,), float(t))), solver.schedule)
    solver.draw(model, noise)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert (noise._normal > 1) == (label in NOISY)


@each_solver
def test_it_is_the_loop_of_diffusers(label: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Written out as its documentation has it, with our noise put in by hand."""
    scheduler, options = SOLVERS[label]
    evaluations = EVALUATIONS.get(scheduler, 5)
    schedule, network, noise = linear(1000), WaveNetwork(), SampleNoise(0, range(2), (3, 4, 4))
    solver = DiffusersSolver(scheduler, options, schedule, evaluations)
    model = EpsModel(lambda x, t: network(x, torch.full((2,), t - 1)), schedule)
    ours = solver.draw(model, noise).x

    cls = getattr(schedulers, scheduler)
    unclipped = {"clip_sample": False} if "clip_sample" in cls().config else {}
    theirs = cls(trained_betas=schedule.betas[1:].tolist(), **unclipped, **options)
    theirs.set_timesteps(next(n for n in range(1, 20) if _length(theirs, n) == evaluations))
    again = SampleNoise(0, range(2), (3, 4, 4))
    monkeypatch.setattr(torch, "randn", lambda *_, **__: again.normal())
    x = again.normal() * theirs.init_noise_sigma
    for t in theirs.timesteps:
        eps = network(theirs.scale_model_input(x, t), t.expand(2))
        x = theirs.step(eps, t, x).prev_sample
    torch.testing.assert_close(ours, x)


def _length(scheduler: Any, steps: int) -> int:
    try:
        scheduler.set_timesteps(steps)
    except ValueError:
        return 0
    return len(scheduler.timesteps)


@pytest.mark.parametrize("scheduler", ["UniPCMultistepScheduler", "DDIMScheduler"])
def test_x0_is_limited_as_in_other_recipes(scheduler: str) -> None:
    """The last step of both ends in x̂_0."""

    def largest(limit: float | None, **options: Any) -> float:
        solver = DiffusersSolver(scheduler, options, linear(1000), 3, limit)
        noise = SampleNoise(0, range(2), (1, 4, 4))
        model = EpsModel(lambda x, t: torch.zeros_like(x), solver.schedule)
        return float(solver.draw(model, noise).x.abs().max())

    option = "clip_sample" if scheduler == "DDIMScheduler" else "thresholding"
    assert largest(1.0) <= 1.0 + 1e-6 < largest(None)
    assert largest(1.0, **{option: False}) == largest(None)  # an option of the experiment wins


def test_between_timesteps_a_plane_network_interpolates() -> None:
    model = denoiser("toy_mog9")
    x = torch.tensor([[0.3, -0.2]])
    low, middle, high = (model.predict(x, t).eps for t in (400, 400.5, 401))
    torch.testing.assert_close(middle, (low + high) / 2, atol=1e-5, rtol=0)
    assert torch.equal(model.predict(x, 400.0).eps, low)
    assert not torch.equal(middle, low) and not torch.equal(middle, high)
