"""diffusers' `AutoencoderKL`, built from a configuration that is checked key by key.

diffusers ignores keys that it does not know; a misspelt one would change the network silently.
"""

from __future__ import annotations

from collections.abc import Mapping
from inspect import signature
from typing import Any

from ocm_core.compat import make_torchvision_importable
from ocm_core.errors import OcmError, unknown
from ocm_core.io.reading import reading
from ocm_core.networks.config import check_diffusers_sizes

make_torchvision_importable()  # diffusers imports it

from diffusers.models.autoencoders.autoencoder_kl import AutoencoderKL  # noqa: E402

__all__ = ["CLASS", "AutoencoderKL", "downsampling", "new_autoencoder"]

CLASS = "AutoencoderKL"
_NORMALISING = ("latents_mean", "latents_std")
_BLOCKS = {"down_block_types": "DownEncoderBlock2D", "up_block_types": "UpDecoderBlock2D"}


def new_autoencoder(config: Mapping[str, Any], where: str) -> AutoencoderKL:
    """`where` names the file or the parameter in messages; keys that begin with _ are notes.

    The types of the blocks may be left out: diffusers' own default has one level only.
    """
    if config.get("_class_name", CLASS) != CLASS:
        raise OcmError(f"{where}: describes a {config['_class_name']}; expected an {CLASS}")
    check_diffusers_sizes(config, where)
    arguments = {key: value for key, value in config.items() if not key.startswith("_")}
    valid = signature(AutoencoderKL.__init__).parameters.keys() - {"self"}
    for key in arguments.keys() - valid:
        raise OcmError(f"{where}: {unknown(key, valid)}")
    for key in _NORMALISING:
        if arguments.get(key) is not None:
            raise OcmError(
                f"{where}: {key} is set; expected one scaling factor for all channels "
                "(scaling_factor, shift_factor)"
            )
    levels = len(arguments.get("block_out_channels", [None]))
    for key, block in _BLOCKS.items():
        types = arguments.setdefault(key, [block] * levels)
        if not isinstance(types, list | tuple) or len(types) != levels:
            raise OcmError(f"{where}: {key} has not as many entries as block_out_channels")
    with reading(where, f"a configuration of {CLASS}", "compare it with diffusers' documentation"):
        model: AutoencoderKL = AutoencoderKL(**arguments)
    return model


def downsampling(config: Mapping[str, Any]) -> int:
    """The side of an image over that of its latents: every level but the last halves it."""
    return int(2 ** (len(config["block_out_channels"]) - 1))
