"""Schedulers of diffusers as samplers: the contract that each holds on each kind of experiment."""

from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor

from ocm_core.cells import Cell, cells
from ocm_core.diffusion.denoiser import Denoiser, TimeConvention, forward
from ocm_core.diffusion.schedule import flow, linear
from ocm_core.networks.converted import denoiser_of
from ocm_core.networks.of_experiment import new_denoiser, new_score
from ocm_core.params.compose import compose
from ocm_core.rng.noise import SampleNoise
from ocm_core.sampling.diffusers_solver import SCHEDULERS, DiffusersSolver
from ocm_core.sampling.recipe import class_labels, draw_rows, of_cell
from ocm_core.schema.experiment import Experiment
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


@cache
def experiment(name: str) -> Experiment:
    """With every solver as a sampler."""
    asked = ["+methods.none={}"]
    for label, (scheduler, options) in SOLVERS.items():
        grid = {"nfe": [EVALUATIONS.get(scheduler, 5)], "guidance": [KINDS[name]]}
        solver = {"kind": "diffusers", "scheduler": scheduler, "options": options, "grids": [grid]}
        asked.append(f"+sample.samplers.{label}={_hydra(solver)}")
    return compose(name, asked)


def _hydra(value: Any) -> str:
    if isinstance(value, dict):
        return f"{{{', '.join(f'{k}: {_hydra(v)}' for k, v in value.items())}}}"
    return f"[{', '.join(map(_hydra, value))}]" if isinstance(value, list) else repr(value)


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
    return next(cell for cell in cells(experiment(name)) if cell.sampler == label)


def drawn(name: str, label: str, indices: range, **changes: Any) -> Tensor:
    whole, cell, model = experiment(name), cell_of(name, label), replace(denoiser(name), **changes)
    labels = class_labels(model, whole.data.classes, cell.seed, indices)
    return draw_rows(of_cell(whole, cell), model, whole.shape, indices, cell.seed, labels).x


each_solver = pytest.mark.parametrize("label", SOLVERS)


@pytest.mark.parametrize("name", KINDS)
@each_solver
def test_a_sample_depends_on_seed_and_index_and_costs_what_the_cell_says(name, label) -> None:
    passes: list[int] = []

    def counted(network: Any, x: Tensor, *rest: Any) -> Any:
        passes.append(len(x))
        return forward(network, x, *rest)

    whole, cell = drawn(name, label, range(4), forward=counted), cell_of(name, label)
    assert cell.method == "none" and passes == [8 if cell.guidance != 1.0 else 4] * cell.nfe
    assert whole.shape == (4, *experiment(name).shape) and torch.isfinite(whole).all()
    torch.rand(1)
    part = drawn(name, label, range(2, 4))
    scale = float(whole.abs().max())
    torch.testing.assert_close(part / scale, whole[2:] / scale, atol=1e-4, rtol=0)
    assert not torch.allclose(whole[0], whole[1])


@each_solver
def test_it_is_the_loop_of_diffusers(label: str, monkeypatch: pytest.MonkeyPatch) -> None:
    scheduler, options = SOLVERS[label]
    evaluations = EVALUATIONS.get(scheduler, 5)
    schedule, network = linear(1000), WaveNetwork()
    normals = torch.randn(evaluations + 1, 2, 3, 4, 4, generator=torch.Generator().manual_seed(0))
    solver = DiffusersSolver(scheduler, options, schedule, evaluations)
    model = EpsModel(lambda x, t: network(x, torch.full((2,), t - 1)), schedule)
    noise, again = Replay(normals), Replay(normals)
    before = torch.random.get_rng_state()
    ours = solver.draw(model, noise).x
    assert torch.equal(torch.random.get_rng_state(), before)

    cls = getattr(schedulers, scheduler)
    unclipped = {"clip_sample": False} if "clip_sample" in cls().config else {}
    theirs = cls(trained_betas=schedule.betas[1:].tolist(), **unclipped, **options)
    theirs.set_timesteps(next(n for n in range(1, 20) if _length(theirs, n) == evaluations))
    monkeypatch.setattr(torch, "randn", lambda *_, **__: again.normal())
    x = again.normal() * theirs.init_noise_sigma
    for t in theirs.timesteps:
        eps = network(theirs.scale_model_input(x, t), t.expand(2))
        x = theirs.step(eps, t, x).prev_sample
    torch.testing.assert_close(ours, x)
    assert len([*noise.normals]) == len([*again.normals])


def _length(scheduler: Any, steps: int) -> int:
    try:
        scheduler.set_timesteps(steps)
    except ValueError:
        return 0
    return len(scheduler.timesteps)


OF_A_FLOW: dict[str, tuple[str, dict[str, Any]]] = {
    "euler": ("FlowMatchEulerDiscreteScheduler", {}),
    "heun": ("FlowMatchHeunDiscreteScheduler", {}),
    **{name: (f"{name}MultistepScheduler", {}) for name in ("UniPC", "DPMSolver", "DEIS")},
    "sa": ("SASolverScheduler", {}),
    "sde": ("DPMSolverMultistepScheduler", SDE),
}


@pytest.mark.parametrize("label", OF_A_FLOW)
def test_with_flow_sigmas_it_is_the_loop_of_diffusers(
    label: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a network for the velocity, on the path; pure noise is told as our last timestep."""
    (scheduler, options), shift, network = OF_A_FLOW[label], 2.0, WaveNetwork()
    schedule = flow(999, shift)
    normals = torch.randn(12, 2, 3, 4, 4, generator=torch.Generator().manual_seed(0))
    solver = DiffusersSolver(scheduler, options, schedule, 5, shift=shift)
    model = denoiser_of(network, schedule, TimeConvention(), "flow_prediction")
    noise, again = Replay(normals), Replay(normals)
    ours = solver.draw(model, noise).x

    cls = getattr(schedulers, scheduler)
    keys = {"use_flow_sigmas": True, "flow_shift": shift, "prediction_type": "flow_prediction"}
    theirs = cls(**({"shift": shift} if "FlowMatch" in scheduler else keys), **options)
    theirs.set_timesteps(3 if label == "heun" else 5)
    monkeypatch.setattr(torch, "randn", lambda *_, **__: again.normal())
    x, last = again.normal(), 1000 * shift * 0.999 / (1 + (shift - 1) * 0.999)
    for t in theirs.timesteps:
        velocity = network(x, t.expand(2).clamp(max=last))
        x = theirs.step(velocity, t, x).prev_sample
    torch.testing.assert_close(ours, x, atol=2e-4, rtol=1e-4)
    assert len([*noise.normals]) == len([*again.normals])


@pytest.mark.parametrize("scheduler", ["UniPCMultistepScheduler", "DDIMScheduler"])
def test_x0_is_limited_as_in_other_recipes(scheduler: str) -> None:
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
