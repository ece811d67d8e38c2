"""A model trained with diffusers, a covariance head for it, and samples with diffusers again.

    python examples/back_into_diffusers.py                       some minutes
    python examples/back_into_diffusers.py --iterations 100      some seconds, and no digits yet

It trains a `UNet2DModel` on the digits as diffusers' own example does and writes it with
`save_pretrained`. From there on the model is a folder like anyone's: a head is trained on it,
both are written as a pipeline (`api.save_pipeline`), and diffusers samples that in ten steps.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from sklearn.datasets import load_digits

from ocm_core import api


def train(images: torch.Tensor, iterations: int, folder: Path) -> None:
    """diffusers alone: a prediction of v on a cosine schedule."""
    from diffusers import DDPMPipeline, DDPMScheduler, UNet2DModel

    torch.manual_seed(0)
    scheduler = DDPMScheduler(beta_schedule="squaredcos_cap_v2", prediction_type="v_prediction")
    model = UNet2DModel(
        sample_size=8,
        in_channels=1,
        out_channels=1,
        layers_per_block=1,
        block_out_channels=(32, 64),
        down_block_types=("DownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "UpBlock2D"),
        norm_num_groups=8,
    )
    optimiser = torch.optim.AdamW(model.parameters(), 2e-3)
    for _ in range(iterations):
        x0 = images[torch.randint(len(images), (64,))]
        eps, t = torch.randn_like(x0), torch.randint(1000, (64,))
        said = model(scheduler.add_noise(x0, eps, t), t).sample
        loss = (said - scheduler.get_velocity(x0, eps, t)).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    DDPMPipeline(model.eval(), scheduler).save_pretrained(folder)


def sample(folder: Path, target: Path) -> None:
    """diffusers alone, again."""
    from diffusers import DiffusionPipeline
    from diffusers.utils import make_image_grid

    pipe = DiffusionPipeline.from_pretrained(
        folder, custom_pipeline=str(folder), trust_remote_code=True
    )
    generator = torch.Generator().manual_seed(0)
    images = pipe(batch_size=16, num_inference_steps=10, generator=generator).images
    make_image_grid([image.resize((32, 32)) for image in images], rows=4, cols=4).save(target)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--iterations", type=int, default=2000)
    parser.add_argument("--folder", type=Path, default=Path("samples/back_into_diffusers"))
    given = parser.parse_args()
    images = torch.from_numpy(load_digits().images).float()[:, None] / 8 - 1
    model, pipeline = given.folder / "model", given.folder / "pipeline"
    train(images[:-300], given.iterations, model)
    denoiser = api.load(model)
    denoiser = api.fit_head(denoiser, images[:-300], "ocm", draws=20 * given.iterations)
    for method in ("beta_tilde", "ocm"):
        print(method, api.evaluate(denoiser, images[-64:], method, steps=10))
    api.save_pipeline(denoiser, model, pipeline, "ocm", trained_on="scikit-learn's digits")
    sample(pipeline, given.folder / "ten_steps.png")


if __name__ == "__main__":
    main()
