"""Sampling an adapted model with a fixed variance is what diffusers' own schedulers do with it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from ocm_core import api
from ocm_core.diffusion.denoiser import Denoiser
from ocm_core.rng.noise import SampleNoise
from tests.init.folders import write_stable_diffusion
from tests.networks.diffusers_cases import CONFIGS, model, tiny_dit

from diffusers import DDIMScheduler, DDPMScheduler, UNet2DConditionModel  # isort: skip
from diffusers.schedulers import scheduling_ddpm  # isort: skip

STEPS = 20
BETAS = {"num_train_timesteps": STEPS, "beta_start": 1e-5, "beta_end": 0.3}
LABELS = torch.tensor([3, 1])
Forward = Callable[[Tensor, Tensor], Tensor]  # of x and diffusers' timestep
Case = tuple[Denoiser, Forward, tuple[int, int, int], dict[str, Any]]


def unet() -> Case:
    own, settings = model(CONFIGS["classes"]), {"prediction_type": "sample"}
    denoiser = api.wrap(own, DDPMScheduler(**BETAS, **settings))
    return denoiser, lambda x, t: own(x, t, LABELS).sample, (3, 8, 8), settings


def transformer() -> Case:
    own = tiny_dit()
    denoiser = api.wrap(own, DDPMScheduler(**BETAS))

    def forward(x: Tensor, t: Tensor) -> Tensor:
        said = own(x, timestep=t.expand(2), class_labels=LABELS).sample
        return said[:, :4]  # and the learned variance, which these two do not use

    return denoiser, forward, (4, 8, 8), {}


def with_text(folder: Path) -> Case:
    settings = {"prediction_type": "v_prediction", "clip_sample": False}  # of latents
    write_stable_diffusion(folder, "v_prediction")
    DDPMScheduler(**BETAS, **settings).save_pretrained(folder / "scheduler")
    denoiser = api.load(folder, prompts=["a cat", "a dog", "an ox", "x"])
    own = UNet2DConditionModel.from_pretrained(folder / "unet").eval()
    text = denoiser.network.network.prompts(LABELS)
    return denoiser, lambda x, t: own(x, t, text).sample, (4, 8, 8), settings


@pytest.fixture(params=["UNet2DModel", "DiTTransformer2DModel", "UNet2DConditionModel"])
def case(request: pytest.FixtureRequest, tmp_path: Path) -> Case:
    if request.param == "UNet2DConditionModel":
        return with_text(tmp_path / "model")
    return unet() if request.param == "UNet2DModel" else transformer()


def test_delta_is_their_ddim(case: Case) -> None:
    denoiser, forward, shape, settings = case
    scheduler = DDIMScheduler(**BETAS, **settings)
    scheduler.set_timesteps(10)
    x = SampleNoise(seed=3, indices=[0, 1], shape=shape).normal()
    with torch.no_grad():
        for t in scheduler.timesteps:
            x = scheduler.step(forward(x, t), t, x).prev_sample
    timesteps = tuple(int(t) + 1 for t in reversed(scheduler.timesteps))
    recipe = {"sampler": "ddim", "timesteps": timesteps, "count": 2, "seed": 3, "labels": LABELS}
    assert_close(api.sample(denoiser, shape, "delta", **recipe), x, atol=2e-5, rtol=0)


def test_beta_tilde_is_their_ddpm(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    denoiser, forward, shape, settings = case
    noise = SampleNoise(seed=3, indices=[0, 1], shape=shape)
    monkeypatch.setattr(scheduling_ddpm, "randn_tensor", lambda *_, **__: noise.normal())
    scheduler, x = DDPMScheduler(**BETAS, **settings), noise.normal()
    with torch.no_grad():
        for t in scheduler.timesteps:
            x = scheduler.step(forward(x, t), t, x).prev_sample
    recipe = {"steps": STEPS, "count": 2, "seed": 3, "labels": LABELS}
    assert_close(api.sample(denoiser, shape, "beta_tilde", **recipe), x, atol=5e-5, rtol=0)
