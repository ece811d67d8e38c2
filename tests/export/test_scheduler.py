"""Our scheduler in the loops and pipelines of diffusers gives the samples of `api.sample`."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from diffusers import DDPMPipeline, DDPMScheduler
from torch import Tensor

from ocm_core import api
from ocm_core.diffusion.denoiser import Denoiser
from ocm_core.errors import OcmError
from ocm_core.export.scheduler import CovarianceScheduler
from ocm_core.rng.noise import SampleNoise
from tests.export.test_pipeline import HEADS, SHAPE, SHORT, images
from tests.networks.diffusers_cases import CONFIGS, model, tiny_dit


def loop(network: Any, scheduler: Any, shape: tuple[int, ...], steps: int, **given: Any) -> Tensor:
    """The loop of diffusers' documentation, with the noise of our streams."""
    noise = SampleNoise(3, range(2), shape)
    scheduler.set_timesteps(steps)
    x = noise.normal() * scheduler.init_noise_sigma
    for t in scheduler.timesteps:
        with torch.no_grad():
            output = network(scheduler.scale_model_input(x, t), t.expand(2), **given).sample
        last = t == scheduler.timesteps[-1]
        drawn = None if last else noise.normal()
        x = scheduler.step(output, t, x, variance_noise=drawn).prev_sample
    return x


def wrapped(name: str = "plain", **changes: Any) -> tuple[Any, DDPMScheduler, Denoiser]:
    own, base = model(CONFIGS[name]), DDPMScheduler(**{**SHORT, **changes})
    return own, base, api.wrap(own, base)


@pytest.mark.parametrize("order", [1, 2, 3])
@pytest.mark.parametrize(("sampler", "method"), [("ddpm", "beta_tilde"), ("ddim", "delta")])
def test_samples_of_fixed_variances(sampler: str, method: str, order: Any) -> None:
    own, base, denoiser = wrapped()
    how: Any = {"sampler": sampler, "order": order}
    theirs = loop(own, api.scheduler(denoiser, base, method, **how), SHAPE, 5)
    ours = api.sample(denoiser, SHAPE, method, steps=5, count=2, seed=3, **how)
    torch.testing.assert_close(theirs, ours, atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    ("name", "changes", "how"),
    [
        ("plain", {}, {"sampler": "ddim", "order": 2}),
        ("plain", {}, {"timesteps": (3, 10, 30, 40)}),
        ("attention", {"prediction_type": "v_prediction", "rescale_betas_zero_snr": True}, {}),
        ("classes", {"prediction_type": "sample"}, {"preset": "diverse"}),
    ],
)
def test_samples_with_a_head(name: str, changes: dict[str, Any], how: Any) -> None:
    """It reads the features of the model's own forward pass."""
    own, base, denoiser = wrapped(name, **changes)
    labels = torch.arange(8) % 5 if name == "classes" else None
    denoiser = api.train_head(denoiser, images(), labels=labels, **HEADS)
    label = torch.tensor([1, 4]) if name == "classes" else None
    given = {} if label is None else {"class_labels": label}
    scheduler = api.scheduler(denoiser, base, "ocm", model=own, steps=4, **how)
    theirs = loop(own, scheduler, SHAPE, 4, **given)
    draw: Any = {"count": 2, "seed": 3, "labels": label, "steps": 4, **how}
    ours = api.sample(denoiser, SHAPE, "ocm", **draw)
    torch.testing.assert_close(theirs, ours, atol=1e-5, rtol=0)
    if how.get("sampler") == "ddim":  # the head has its say
        assert not torch.allclose(theirs, api.sample(denoiser, SHAPE, "delta", **draw), atol=1e-3)


def test_a_learned_variance_needs_no_head() -> None:
    own, base, shape = tiny_dit(), DDPMScheduler(**SHORT), (4, 8, 8)
    denoiser, label = api.wrap(own, base), torch.tensor([0, 3])
    theirs = loop(own, api.scheduler(denoiser, base, "iddpm"), shape, 4, class_labels=label)
    ours = api.sample(denoiser, shape, "iddpm", steps=4, count=2, seed=3, labels=label)
    torch.testing.assert_close(theirs, ours, atol=1e-5, rtol=0)


def test_a_pipeline_of_diffusers_takes_it() -> None:
    own, base, denoiser = wrapped()
    pipe = DDPMPipeline(own, base)
    pipe.set_progress_bar_config(disable=True)
    denoiser = api.train_head(denoiser, images(), **HEADS)
    pipe.scheduler = api.scheduler(denoiser, base, "ocm", model=pipe.unet)
    draw: Any = {"num_inference_steps": 5, "output_type": "np"}
    once, again, other = (
        pipe(2, torch.Generator().manual_seed(seed), **draw).images for seed in (7, 7, 8)
    )
    assert once.shape == (2, 8, 8, 3)
    assert (once == again).all() and not (once == other).all()


def test_a_scheduler_survives_its_configuration(tmp_path: Any) -> None:
    own, base, denoiser = wrapped()
    scheduler = api.scheduler(denoiser, base, "delta", sampler="ddim", order=2)
    scheduler.save_pretrained(tmp_path)
    opened = CovarianceScheduler.from_pretrained(tmp_path)
    assert torch.equal(loop(own, opened, SHAPE, 5), loop(own, scheduler, SHAPE, 5))
    assert len(opened) == SHORT["num_train_timesteps"]
    noise = torch.randn(2, *SHAPE)
    x0, at = torch.zeros(2, *SHAPE), torch.tensor([0, 39])
    torch.testing.assert_close(opened.add_noise(x0, noise, at), base.add_noise(x0, noise, at))


def test_what_a_step_cannot_do_is_refused() -> None:
    own, base, denoiser = wrapped()
    x, t = torch.zeros(2, *SHAPE), torch.tensor(39)
    with pytest.raises(OcmError, match="call set_timesteps first"):
        api.scheduler(denoiser, base, "beta").step(x, t, x)
    with pytest.raises(OcmError, match="'ocm' has no head yet"):
        api.scheduler(denoiser, base, "ocm")
    scheduler = api.scheduler(denoiser, base, "rademacher")
    scheduler.set_timesteps(4)
    with pytest.raises(OcmError, match="evaluates the network itself"):
        scheduler.step(x, t, x)
    headed = api.train_head(denoiser, images(), **HEADS)
    with pytest.raises(OcmError, match="needs the pipeline's `model`"):
        api.scheduler(headed, base, "ocm")
    scheduler = api.scheduler(headed, base, "ocm", model=own)
    scheduler.set_timesteps(4)
    own(torch.cat([x, x]), t)  # as guidance has it
    with pytest.raises(OcmError, match="features of 2 images, and the model has just evaluated 4"):
        scheduler.step(x, t, x)
    scheduler = api.scheduler(denoiser, base, "beta", timesteps=(3, 10, 40))
    with pytest.raises(OcmError, match="num_inference_steps = 4: this scheduler has"):
        scheduler.set_timesteps(4)
