"""diffusers' `AutoencoderKL` as a map between images and scaled latents.

With mean m and standard deviation s of the posterior, latents are (m - shift) · scale with standard
deviation s · scale, so that the data of the diffusion model have about unit variance.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from inspect import signature
from pathlib import Path
from typing import Any, Literal

import torch
from diffusers.models.autoencoders.autoencoder_kl import AutoencoderKL
from jaxtyping import Float32
from safetensors.torch import load_file, save_file
from torch import Tensor

from ocm_core.errors import OcmError, unknown
from ocm_core.io.atomic import replacing, write_text
from ocm_core.io.reading import read_json_object, reading
from ocm_core.networks.config import check_diffusers_sizes
from ocm_core.networks.keys import load_published, refuse_larger, refuse_not_finite
from ocm_core.precision import set_precision

CONFIG, WEIGHTS = "config.json", "diffusion_pytorch_model.safetensors"
CLASS = "AutoencoderKL"
_FOLDER_EXPECTED = "no such file; expected a folder in diffusers' format"
_NORMALISING = ("latents_mean", "latents_std")
_BLOCKS = {"down_block_types": "DownEncoderBlock2D", "up_block_types": "UpDecoderBlock2D"}
# how diffusers named the layers of the attention block when the first autoencoders were published
_FORMER_NAMES = {"query": "to_q", "key": "to_k", "value": "to_v", "proj_attn": "to_out.0"}

VaeImages = Float32[Tensor, "n c h w"]  # in [-1, 1]
VaeLatents = Float32[Tensor, "n d h/f w/f"]
VaePrecision = Literal["float32", "bfloat16"]


@dataclass(frozen=True)
class Vae:
    """A trained autoencoder."""

    model: AutoencoderKL
    precision: VaePrecision = "float32"

    @classmethod
    def load(cls, folder: Path, device: str = "cpu", precision: VaePrecision = "float32") -> Vae:
        """Load a folder that holds exactly the tensors that its configuration asks for.

        The weights stay memory-mapped on the CPU. On a GPU the model runs in TF32, until another
        precision is asked for.
        """
        set_precision()
        config, weights = _read_config(folder / CONFIG), _read_weights(folder / WEIGHTS)
        with torch.device("meta"):
            model = new_autoencoder(config, str(folder / CONFIG))
        refuse_larger(model, folder)
        try:
            refuse_not_finite(weights)
            load_published(model, weights, assign=True)
        except OcmError as error:
            raise OcmError(f"{folder / WEIGHTS}: {error}") from None
        model.to(device)  # type: ignore[arg-type]  # diffusers' wrapper hides the signature
        return cls(model.eval().requires_grad_(False), precision)

    @property
    def scaling_factor(self) -> float:
        return float(self.model.config["scaling_factor"])

    @property
    def shift_factor(self) -> float:
        return float(self.model.config["shift_factor"] or 0.0)

    @property
    def downsampling(self) -> int:
        return downsampling(self.model.config)

    @property
    def channels(self) -> int:
        return int(self.model.config["latent_channels"])

    @torch.no_grad()
    def encode(self, images: VaeImages) -> tuple[VaeLatents, VaeLatents]:
        """Return mean and standard deviation of the posterior, scaled."""
        self._check(images, int(self.model.config["in_channels"]), self.downsampling)
        with self._autocast():
            (posterior,) = self.model.encode(images.to(self.model.device), return_dict=False)
        mean, std = posterior.mean.float(), posterior.std.float()
        return (mean - self.shift_factor) * self.scaling_factor, std * self.scaling_factor

    @torch.no_grad()
    def decode(self, latents: VaeLatents) -> VaeImages:
        """Return images that are not clipped: some values lie a little outside [-1, 1]."""
        self._check(latents, self.channels, 1)
        z = latents.to(self.model.device) / self.scaling_factor + self.shift_factor
        with self._autocast():
            images: Tensor = self.model.decode(z, return_dict=False)[0]
        return images.float()

    def _autocast(self) -> AbstractContextManager[object]:
        if self.precision == "float32":
            return nullcontext()
        return torch.autocast(self.model.device.type, dtype=torch.bfloat16)

    @staticmethod
    def _check(values: Tensor, channels: int, multiple: int) -> None:
        ndim, (height, width) = values.ndim, values.shape[-2:]
        if ndim != 4 or values.shape[1] != channels or height % multiple or width % multiple:
            raise OcmError(
                f"shape {tuple(values.shape)}: expected (n, {channels}, h, w) with h and w "
                f"divisible by {multiple}"
            )


def new_autoencoder(config: Mapping[str, Any], where: str) -> AutoencoderKL:
    """Build the model from a configuration that is checked key by key.

    diffusers ignores keys that it does not know; a misspelt one would change the network silently.
    The types of the blocks may be left out: diffusers' own default has one level only. Keys that
    begin with _ are notes; `where` names the file or the parameter in messages.
    """
    if config.get("_class_name", CLASS) != CLASS:
        raise OcmError(f"{where}: describes a {config['_class_name']}; expected an {CLASS}")
    check_diffusers_sizes(config, where)
    arguments = {key: value for key, value in config.items() if not key.startswith("_")}
    _check_keys(arguments, where)
    levels = len(arguments.get("block_out_channels", [None]))
    for key, block in _BLOCKS.items():
        types = arguments.setdefault(key, [block] * levels)
        if not isinstance(types, list | tuple) or len(types) != levels:
            raise OcmError(f"{where}: {key} has not as many entries as block_out_channels")
    with reading(where, f"a configuration of {CLASS}", "compare it with diffusers' documentation"):
        model: AutoencoderKL = AutoencoderKL(**arguments)
    return model


def downsampling(config: Mapping[str, Any]) -> int:
    """Return the side of an image over that of its latents: every level but the last halves it."""
    return int(2 ** (len(config["block_out_channels"]) - 1))


def save_folder(model: AutoencoderKL, folder: Path, scaling_factor: float) -> None:
    """Write the format that `Vae.load` and diffusers read; the same weights give the same bytes."""
    arguments = {key: value for key, value in model.config.items() if not key.startswith("_")}
    config = {"_class_name": CLASS, **arguments, "scaling_factor": scaling_factor}
    write_text(folder / CONFIG, json.dumps(config, indent=2, sort_keys=True) + "\n")
    tensors = {key: tensor.detach().cpu() for key, tensor in model.state_dict().items()}
    with replacing(folder / WEIGHTS) as temporary:
        save_file(tensors, temporary)


def _check_keys(arguments: Mapping[str, Any], where: str) -> None:
    valid = signature(AutoencoderKL.__init__).parameters.keys() - {"self"}
    for key, value in arguments.items():
        if key not in valid:
            raise OcmError(f"{where}: {unknown(key, valid)}")
        if key in _NORMALISING and value is not None:
            raise OcmError(
                f"{where}: {key} is set; expected one scaling factor for all channels "
                "(scaling_factor, shift_factor)"
            )


def _read_config(file: Path) -> Mapping[str, Any]:
    if not file.exists():
        raise OcmError(f"{file}: {_FOLDER_EXPECTED}")
    return read_json_object(file, "get it again")


def _read_weights(file: Path) -> dict[str, Tensor]:
    pickled = file.with_suffix(".bin")
    if not file.exists() and pickled.exists():
        raise OcmError(
            f"{pickled}: a pickle, which may run anything when it is opened; get {file.name} "
            "instead, which the authors publish beside it"
        )
    if not file.exists():
        raise OcmError(f"{file}: {_FOLDER_EXPECTED}")
    with reading(file, "a whole safetensors file", "get it again"):
        tensors = load_file(file)
    return {_present_name(key): tensor.float() for key, tensor in tensors.items()}


def _present_name(key: str) -> str:
    head, _, rest = key.partition(".mid_block.attentions.0.")
    layer, _, parameter = rest.rpartition(".")
    if layer not in _FORMER_NAMES:
        return key
    return f"{head}.mid_block.attentions.0.{_FORMER_NAMES[layer]}.{parameter}"
