"""Train a small autoencoder, for experiments that have no published one.

The loss of an image x is ‖x - x̂‖² + w KL(q(z|x) ‖ N(0, I)), with x̂ decoded from a sample of q.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from diffusers.models.autoencoders.autoencoder_kl import AutoencoderKL
from torch import nn

from ocm_core.diffusion.gaussian import sum_dims
from ocm_core.latents.vae import Vae
from ocm_core.rng.batches import BatchRng
from ocm_core.shapes import Batch, PerSample
from ocm_core.training.batches import Items
from ocm_core.training.loop import Objective

ImagesAndNoise = tuple[Batch, Batch]


@dataclass(frozen=True)
class VaeFitting(Objective[ImagesAndNoise]):
    """The loss above, with noise of the posterior drawn by index."""

    model: AutoencoderKL
    items: Items  # images in [-1, 1]
    kl_weight: float

    @property
    def networks(self) -> Mapping[str, nn.Module]:
        return {"vae": self.model}

    def draw(self, rng: BatchRng) -> ImagesAndNoise:
        images, vae = self.items.batch(rng)[0], Vae(self.model)
        height, width = (side // vae.downsampling for side in images.shape[2:])
        return images, rng.normals((vae.channels, height, width))

    def losses_on(self, drawn: ImagesAndNoise) -> dict[str, PerSample]:
        images, noise = drawn
        (posterior,) = self.model.encode(images, return_dict=False)
        (decoded,) = self.model.decode(posterior.mean + posterior.std * noise, return_dict=False)
        return {"vae": sum_dims((images - decoded) ** 2) + self.kl_weight * posterior.kl()}


@torch.no_grad()
def measured_scaling(model: AutoencoderKL, images: Batch, batch_size: int) -> float:
    """Return 1 / standard deviation of z ~ q(z|x) over images, channels and pixels.

    Var z = Var m + E s², with mean m and standard deviation s of the posterior.
    """
    means, variances = [], []
    for start in range(0, len(images), batch_size):
        batch = images[start : start + batch_size].to(model.device)
        (posterior,) = model.encode(batch, return_dict=False)
        means.append(posterior.mean.double())
        variances.append(posterior.var.double())
    return float((torch.cat(means).var() + torch.cat(variances).mean()).rsqrt())
