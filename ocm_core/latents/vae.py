"""An autoencoder of diffusers as a map between images and scaled latents, and its folder.

With mean m and standard deviation s of the posterior, latents are (m - shift) · scale with standard
deviation s · scale, so that the data of the diffusion model have about unit variance. The deep
compression autoencoder (`AutoencoderDC`) has no posterior: there s = 0.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from inspect import signature
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import torch
from diffusers.models.autoencoders.autoencoder_dc import AutoencoderDC
from diffusers.models.autoencoders.autoencoder_kl import AutoencoderKL
from jaxtyping import Float32, UInt8
from numpy import ndarray
from safetensors.torch import load_file
from torch import Tensor

from ocm_core.errors import OcmError, unknown
from ocm_core.io.atomic import write_tensors, write_text
from ocm_core.io.reading import read_json_object, reading
from ocm_core.networks.config import DiffusersSizes, read_known
from ocm_core.networks.keys import load_published, refuse_larger, refuse_not_finite
from ocm_core.precision import set_precision
from ocm_core.prefetch import moved, pinned
from ocm_core.rng.streams import Stream, stream
from ocm_core.schema.experiment import downsampling

CONFIG, WEIGHTS = "config.json", "diffusion_pytorch_model.safetensors"
Autoencoder = AutoencoderKL | AutoencoderDC
CLASSES: dict[str, Any] = {"AutoencoderKL": AutoencoderKL, "AutoencoderDC": AutoencoderDC}
_BLOCKS = {"down_block_types": "DownEncoderBlock2D", "up_block_types": "UpDecoderBlock2D"}
# how diffusers named the layers of the attention block when the first autoencoders were published
_NOW = {"query": "to_q", "key": "to_k", "value": "to_v", "proj_attn": "to_out.0"}
_FORMER = re.compile(rf"(?<=\.mid_block\.attentions\.0\.)({'|'.join(_NOW)})(?=\.)")

VaeImages = Float32[Tensor, "n c h w"]  # in [-1, 1]
VaeLatents = Float32[Tensor, "n d h/f w/f"]


@dataclass(frozen=True)
class Vae:
    """A trained autoencoder."""

    model: Any  # an Autoencoder: diffusers' wrapper hides the signatures of its methods

    @classmethod
    def load(cls, folder: Path, device: str = "cpu") -> Self:
        """Load a folder that holds exactly the tensors that its configuration asks for."""
        set_precision()
        for file in (folder / CONFIG, folder / WEIGHTS):
            if not file.exists():
                expected = "diffusers' format, with safetensors: no pickle (.bin) is opened"
                raise OcmError(f"{file}: no such file; expected a folder in {expected}")
        config = read_json_object(folder / CONFIG, "get it again")
        with reading(folder / WEIGHTS, "a whole safetensors file", "get it again"):
            tensors = load_file(folder / WEIGHTS)
        weights = {_FORMER.sub(lambda m: _NOW[m[0]], k): t.float() for k, t in tensors.items()}
        with torch.device("meta"):
            model = new_autoencoder(config, str(folder / CONFIG))
        refuse_larger(model, folder)
        refuse_not_finite(weights, folder / WEIGHTS)
        load_published(model, weights, folder / WEIGHTS, assign=True)
        return cls(model.to(device).eval().requires_grad_(False))

    @property
    def scaling_factor(self) -> float:
        return float(self.model.config["scaling_factor"])

    @property
    def shift_factor(self) -> float:
        return float(self.model.config.get("shift_factor") or 0.0)

    @property
    def downsampling(self) -> int:
        return downsampling(dict(self.model.config))

    @property
    def channels(self) -> int:
        return int(self.model.config["latent_channels"])

    @torch.no_grad()
    def encode(self, images: VaeImages) -> tuple[VaeLatents, VaeLatents]:
        """Return mean and standard deviation of the posterior, scaled."""
        self._check(images, int(self.model.config["in_channels"]), self.downsampling)
        (found,) = self.model.encode(images.to(self.model.device), return_dict=False)
        deep = isinstance(found, Tensor)
        mean, std = (found, torch.zeros_like(found)) if deep else (found.mean, found.std)
        mean, std = mean.float(), std.float()
        return (mean - self.shift_factor) * self.scaling_factor, std * self.scaling_factor

    @torch.no_grad()
    def decode(self, latents: VaeLatents) -> VaeImages:
        """Return images that are not clipped: some values lie a little outside [-1, 1]."""
        self._check(latents, self.channels, 1)
        z = latents.to(self.model.device) / self.scaling_factor + self.shift_factor
        images: Tensor = self.model.decode(z, return_dict=False)[0]
        return images.float()

    @staticmethod
    def _check(values: Tensor, channels: int, multiple: int) -> None:
        shape, (height, width) = tuple(values.shape), values.shape[-2:]
        if len(shape) != 4 or shape[1] != channels or height % multiple or width % multiple:
            expected = f"(n, {channels}, h, w) with h and w divisible by {multiple}"
            raise OcmError(f"shape {shape}: expected {expected}")


@dataclass(frozen=True)
class LatentEncoding:
    """How the stage `encode` stores images, scaled.

    `mean` stores the mean of the posterior; `sample` one sample, whose noise depends on seed and
    index only; `keep` mean and standard deviation, so that training draws a new sample each time.
    """

    vae: Vae
    image_levels: int  # grey levels of the images
    posterior: Literal["mean", "sample", "keep"]
    seed: int  # of `sample`
    batch_size: int
    provenance: Mapping[str, Any]

    @property
    def spread(self) -> bool:
        return self.posterior == "keep"

    @property
    def attrs(self) -> dict[str, Any]:
        return {
            "scaling_factor": self.vae.scaling_factor,
            "shift_factor": self.vae.shift_factor,
            "posterior": self.posterior,
            "provenance": dict(self.provenance),
        }

    def __call__(self, images: UInt8[ndarray, "n c h w"], rows: range) -> dict[str, ndarray]:
        """Return the arrays to store; `rows` are the indices of the images in their split."""
        parts = zip(*self._batches(images), strict=True)
        mean, std = (torch.cat(part).cpu().numpy() for part in parts)
        if self.posterior == "sample":
            for place, row in enumerate(rows):
                source = stream(Stream.STORE_ITEM, self.seed, row)
                noise = source.standard_normal(mean.shape[1:], dtype=np.float32)
                mean[place] += std[place] * noise
        return {"x": mean, "std": std} if self.spread else {"x": mean}

    def _batches(self, images: ndarray) -> Iterator[tuple[VaeLatents, VaeLatents]]:
        device = self.vae.model.device
        for start in range(0, len(images), self.batch_size):
            stored = torch.tensor(images[start : start + self.batch_size])
            levels = moved(pinned(stored, device), device).float()  # scaled on the device
            yield self.vae.encode(2 * levels / (self.image_levels - 1) - 1)


def new_autoencoder(config: Mapping[str, Any], where: str) -> Any:
    """Build the Autoencoder; `where` names the file or the parameter in messages.

    diffusers ignores keys that it does not know, and its default types of blocks have one level.
    """
    name = config.get("_class_name", "AutoencoderKL")
    if name not in CLASSES:
        raise OcmError(f"{where}: describes a {name!s:.100}; expected an {' or '.join(CLASSES)}")
    read_known(DiffusersSizes, config, where)
    arguments = {key: value for key, value in config.items() if not key.startswith("_")}
    valid = signature(CLASSES[name].__init__).parameters.keys() - {"self"}
    for key, value in arguments.items():
        if key not in valid:
            raise OcmError(f"{where}: {unknown(key, valid)}")
        if key in ("latents_mean", "latents_std") and value is not None:
            raise OcmError(f"{where}: {key} is set; expected one scaling_factor for all channels")
    levels = len(arguments.get("block_out_channels", [None]))
    for key, block in _BLOCKS.items() if name == "AutoencoderKL" else ():
        types = arguments.setdefault(key, [block] * levels)
        if not isinstance(types, list | tuple) or len(types) != levels:
            raise OcmError(f"{where}: {key} has not as many entries as block_out_channels")
    with reading(where, f"a configuration of {name}", "compare it with diffusers' documentation"):
        return CLASSES[name](**arguments)


def save_folder(model: Autoencoder, folder: Path, scaling_factor: float) -> None:
    """Write the format that `Vae.load` and diffusers read; the same weights give the same bytes."""
    arguments = {key: value for key, value in model.config.items() if not key.startswith("_")}
    name = type(model).__name__
    config = {"_class_name": name, **arguments, "scaling_factor": scaling_factor}
    write_text(folder / CONFIG, json.dumps(config, indent=2, sort_keys=True) + "\n")
    write_tensors(folder / WEIGHTS, model.state_dict())
