"""Sampling an adapted model with a fixed variance is what diffusers' own schedulers do with it."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from ocm_core import api
from ocm_core.diffusion.denoiser import Denoiser
from ocm_core.networks.converted import unconverted
from ocm_core.networks.diffusers import Prompts
from ocm_core.rng.noise import SampleNoise
from tests.networks.diffusers_cases import CASES, CLASSES, drawn, output_of, prompts_of

from diffusers import DDIMScheduler, DDPMScheduler  # isort: skip
from diffusers import EDMEulerScheduler, FlowMatchEulerDiscreteScheduler  # isort: skip
from diffusers.schedulers import scheduling_ddpm  # isort: skip

STEPS = 20
BETAS = {"num_train_timesteps": STEPS, "beta_start": 1e-5, "beta_end": 0.3}
LABELS = torch.tensor([3, 1])
SETTINGS: dict[str, dict[str, Any]] = {
    "classes": {"prediction_type": "sample"},
    "dit": {},
    "text": {"prediction_type": "v_prediction", "clip_sample": False},  # of latents
}
Forward = Callable[[Tensor, Tensor], Tensor]  # of x and diffusers' timestep
Case = tuple[Denoiser, Forward, tuple[int, int, int], dict[str, Any]]


@pytest.fixture(params=SETTINGS)
def case(request: pytest.FixtureRequest) -> Case:
    (kind, config), settings = CASES[request.param], SETTINGS[request.param]
    own, channels = drawn(kind, config), config.get("in_channels", 4)
    latent = request.param == "text"
    denoiser = api.wrap(own, DDPMScheduler(**BETAS, **settings), CLASSES, latent)
    if latent:
        unconverted(denoiser.network).prompts = Prompts(prompts_of(own))

    def forward(x: Tensor, t: Tensor) -> Tensor:
        said = output_of(own, x, t.expand(2), LABELS)
        return said[:, :channels]  # and the learned variance, which these two do not use

    return denoiser, forward, (channels, 8, 8), settings


@pytest.mark.parametrize(
    ("sampler", "method", "tolerance"), [("ddim", "delta", 2e-5), ("ddpm", "beta_tilde", 5e-5)]
)
def test_samples_are_those_of_their_scheduler(
    sampler: str, method: str, tolerance: float, case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    denoiser, forward, shape, settings = case
    noise = SampleNoise(seed=3, indices=[0, 1], shape=shape)
    monkeypatch.setattr(scheduling_ddpm, "randn_tensor", lambda *_, **__: noise.normal())
    scheduler = (DDIMScheduler if sampler == "ddim" else DDPMScheduler)(**BETAS, **settings)
    if sampler == "ddim":
        scheduler.set_timesteps(10)
    x = noise.normal()
    with torch.no_grad():
        for t in scheduler.timesteps:
            x = scheduler.step(forward(x, t), t, x).prev_sample
    timesteps = tuple(int(t) + 1 for t in reversed(scheduler.timesteps))
    recipe = {"sampler": sampler, "timesteps": timesteps, "count": 2, "seed": 3, "labels": LABELS}
    assert_close(api.sample(denoiser, shape, method, **recipe), x, atol=tolerance, rtol=0)


def flow_matching(dynamic: bool) -> Any:
    """Nine noise levels and pure noise; dynamic, the shift is that of 8×8 tokens."""
    lengths = {"base_image_seq_len": 0, "max_image_seq_len": 128, "base_shift": 0.0}
    options = {"use_dynamic_shifting": True, **lengths} if dynamic else {"shift": 3.0}
    made = FlowMatchEulerDiscreteScheduler(num_train_timesteps=10, **options)
    given = {"mu": 1.15 * 64 / 128} if dynamic else {}  # as pipelines give it
    made.set_timesteps(sigmas=[0.9, 0.7, 0.5, 0.3, 0.1], **given)
    return made


def edm(_: bool) -> Any:
    made = EDMEulerScheduler(num_train_timesteps=9, sigma_max=20.0)
    made.set_timesteps(5)
    return made


@pytest.mark.parametrize("make, dynamic", [(flow_matching, 0), (flow_matching, 1), (edm, 0)])
def test_flows_and_edm_give_the_samples_of_their_schedulers(make: Any, dynamic: bool) -> None:
    """Euler's step on either path is DDIM's; x lives on the path, ours at unit variance."""
    kind, config = CASES["plain"]
    own, scheduler, shape = drawn(kind, config), make(dynamic), (3, 8, 8)
    noise = SampleNoise(seed=3, indices=[0, 1], shape=shape).normal()
    alpha, sigma = 1 if make is edm else 1 - scheduler.sigmas[0], scheduler.sigmas[0]
    x = noise * (alpha**2 + sigma**2) ** 0.5
    with torch.no_grad():
        for t in scheduler.timesteps:
            said = own(scheduler.scale_model_input(x, t) if make is edm else x, t).sample
            x = scheduler.step(said, t, x).prev_sample
    denoiser = api.wrap(own, make(dynamic), latent=True)
    recipe = {"sampler": "ddim", "timesteps": (1, 3, 5, 7, 9), "count": 2, "seed": 3}
    assert_close(api.sample(denoiser, shape, "delta", **recipe), x, atol=2e-5, rtol=1e-5)
