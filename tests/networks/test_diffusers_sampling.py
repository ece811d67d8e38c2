"""Sampling an adapted model with a fixed variance is what diffusers' own schedulers do with it."""

from __future__ import annotations

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
from tests.networks.diffusers_cases import CASES, PROMPTS, drawn, output_of

from diffusers import DDIMScheduler, DDPMScheduler  # isort: skip
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
    denoiser = api.wrap(own, DDPMScheduler(**BETAS, **settings), len(PROMPTS) - 1, latent)
    if latent:
        unconverted(denoiser.network).prompts = Prompts(PROMPTS)

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
