"""A covariance for a diffusion model of your own.

    python examples/own_model.py                         a small UNet, trained here for some seconds
    python examples/own_model.py --model FOLDER          one that diffusers' `save_pretrained` wrote

It trains a head on the frozen model, says what that is worth in bits per dimension, and draws
samples from the same noise with the usual variance and with the learned one. A real model needs
its own images in place of `digits()`, and thousands of iterations. docs/your_model.md goes on from
here.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from sklearn.datasets import load_digits

from ocm_core import api
from ocm_core.diffusion.denoiser import Denoiser
from ocm_core.diffusion.timesteps import even

STEPS = 10


def improve(denoiser: Denoiser, images: torch.Tensor, iterations: int, folder: Path) -> None:
    """All that is needed with a model and its images at hand."""
    train, test = images[:-100], images[-100:]
    denoiser = api.fit_head(denoiser, train, "ocm", draws=20 * iterations)
    api.save_heads(denoiser, folder / "heads.safetensors")
    for method in ("beta_tilde", "ocm"):
        bits = api.bits_per_dim(denoiser, test, method, even(denoiser.schedule.steps, STEPS))
        samples = api.sample(denoiser, images.shape[1:], method, steps=STEPS)
        api.save_grid(samples, folder / f"{method}.png")
        print(f"{method}: {bits.mean():.2f} bits per dimension in {STEPS} steps")


def digits() -> torch.Tensor:
    """Images in [-1, 1]: (image, channel, height, width)."""
    return torch.from_numpy(load_digits().images).float()[:, None] / 8 - 1


def stand_in(images: torch.Tensor, iterations: int) -> Denoiser:
    """A model that predicts the noise, as diffusers trains it."""
    from diffusers import DDPMScheduler, UNet2DModel

    torch.manual_seed(0)
    scheduler = DDPMScheduler()
    model = UNet2DModel(
        sample_size=8,
        in_channels=1,
        out_channels=1,
        layers_per_block=1,
        block_out_channels=(16, 32),
        down_block_types=("DownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "UpBlock2D"),
        norm_num_groups=4,
    )
    optimiser = torch.optim.AdamW(model.parameters(), 1e-3)
    for _ in range(iterations):
        x0 = images[torch.randint(len(images), (64,))]
        eps, t = torch.randn_like(x0), torch.randint(1000, (64,))
        loss = (model(scheduler.add_noise(x0, eps, t), t).sample - eps).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return api.wrap(model.eval(), scheduler)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, help="a folder with a UNet2DModel and its scheduler")
    parser.add_argument("--iterations", type=int, default=300)
    parser.add_argument("--folder", type=Path, default=Path("samples/own_model"))
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    images = digits()
    denoiser = api.load(given.model) if given.model else stand_in(images[:-100], given.iterations)
    improve(denoiser, images, given.iterations, given.folder)


if __name__ == "__main__":
    main()
