"""Samples by a model that diffusers wrote, with a file of heads, by means of `ocm_core/api.py`."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

from ocm_core import api
from ocm_core.checkpoints.diffusers_folder import describe
from ocm_core.diffusion.denoiser import Denoiser
from ocm_core.errors import OcmError
from ocm_core.io.checksums import sha256_of
from ocm_core.latents.vae import Vae
from ocm_core.networks.converted import unconverted
from ocm_core.networks.diffusers_unet import DiffusersUNet
from ocm_core.pipeline.job import available_device
from ocm_core.rng.noise import draw_labels
from ocm_core.sampling.order import Order
from ocm_core.sampling.presets import preset_named
from ocm_core.sampling.recipe import Recipe, Watcher, draw_rows
from ocm_core.sampling.request import SampleGenerator, SampleRequest
from ocm_core.schema.experiment import PresetName
from ocm_core.schema.timesteps import OptimalTimesteps
from ocm_core.stages._images import Decode, identity
from ocm_core.store.writer import ShardValues

LEVELS = 256
BATCH = 64
DECODED = 8  # images at once, each of which takes far more memory than its latents


def from_folder(folder: Path, heads: Path | None, request: SampleRequest) -> SampleGenerator:
    """Return a generator by a folder of `save_pretrained` and heads of `api.save_heads`."""
    described = describe(folder)
    if request.prompt is not None or described.text is not None:
        raise OcmError(
            "--model: a model that takes text is sampled as an experiment, or exported from one:"
            " see `ocm init --captions`"
        )
    if request.score is not None or request.guidance != 1.0:
        raise OcmError("--score and --guidance belong to experiments; leave them out with --model")
    preset = preset_named(request.preset)
    wanted = request.timesteps or preset.recipe(request.steps).timesteps
    if isinstance(wanted, OptimalTimesteps):
        raise OcmError(
            "optimal timesteps are found on images; give with --timesteps those that"
            " api.optimal_timesteps returns: --timesteps 10,200,1000"
        )
    method = request.method or preset.method
    torch.set_num_threads(request.threads)
    device = available_device(request.device)
    denoiser = api.load(folder, device)
    if heads is not None:
        denoiser = api.load_heads(denoiser, heads)
    _check_method(denoiser, method)
    recipe = _recipe(denoiser, method, request)
    network = cast(DiffusersUNet, unconverted(denoiser.network))
    shape = _shape(network, folder)
    vae = Vae.load(folder / "vae", device) if described.vae else None
    _check_label(network, request.label)

    def draw(rows: range, watch: Watcher) -> ShardValues:
        labels = _labels(network, request, rows)
        label = None if labels is None else labels.to(device)
        given: Any = {"device": device, "watch": watch}
        x = draw_rows(recipe, denoiser, shape, rows, request.seed, label, **given).x
        values = {"x": x.cpu().numpy()}
        return values if labels is None else {**values, "label": labels.numpy()}

    kernel = recipe.kernel.name
    run = f"{request.preset or kernel}-{method}-nfe{request.steps}"
    return SampleGenerator(
        name=f"{folder.resolve().name}-{run}{request.suffix}",
        shape=shape,
        image_shape=_image_shape(shape, vae),
        levels=LEVELS,
        to_images=_decoder(vae),
        labelled=network.conditional,
        steps=request.steps,
        batch_size=BATCH,
        draw=draw,
        attributes={
            "model": folder.resolve().name,
            "method": method,
            "steps": request.steps,
            "seed": request.seed,
            "sampler": {
                "kind": kernel,
                **recipe.kernel.model_dump(),
                "order": recipe.order,
                "timesteps": [*recipe.timesteps],
                "covariance_scale": recipe.covariance_scale,
                "final_sigma": recipe.final_sigma,
            },
            "label": request.label,
            "digests": _digests(folder, heads),
        },
    )


def _recipe(denoiser: Denoiser, method: str, request: SampleRequest) -> Recipe:
    return api.recipe(
        denoiser,
        method,
        steps=request.steps,
        preset=cast(PresetName | None, request.preset),
        sampler=request.sampler,
        order=cast(Order | None, request.order),
        timesteps=request.timesteps,
    )


def _check_method(denoiser: Denoiser, method: str) -> None:
    """Raise an error if the denoiser does not have what the method needs."""
    match api.method_of(denoiser, method).needs:
        case "head" if method not in denoiser.heads:
            known = ", ".join(denoiser.heads) or "none"
            raise OcmError(
                f"--method {method} needs its head, and there is {known}; give with --head a file"
                " that api.save_heads wrote, or sample with beta_tilde, which needs nothing"
            )
        case "moments":
            raise OcmError(
                f"--method {method} needs a table of moments, which a folder of diffusers has not;"
                " make the model an experiment, or choose another method"
            )


def _shape(network: DiffusersUNet, folder: Path) -> tuple[int, int, int]:
    size = network.config["sample_size"]
    if size is None:
        raise OcmError(f"{folder}: config.json: sample_size: null; expected the side of the images")
    height, width = (size, size) if isinstance(size, int) else size
    return network.config["in_channels"], height, width


def _image_shape(shape: tuple[int, int, int], vae: Vae | None) -> tuple[int, int, int]:
    if vae is None:
        return shape
    _, height, width = shape
    scale = vae.downsampling
    return vae.model.config["out_channels"], scale * height, scale * width


def _decoder(vae: Vae | None) -> Decode:
    if vae is None:
        return identity

    def decode(latents: Tensor) -> Tensor:
        starts = range(0, len(latents), DECODED)
        return torch.cat([vae.decode(latents[first : first + DECODED]).cpu() for first in starts])

    return decode


def _check_label(network: DiffusersUNet, label: int | None) -> None:
    if label is None:
        return
    if network.classes is None:
        raise OcmError(f"--label {label}: the model takes no classes")
    if label >= network.classes:
        raise OcmError(f"--label {label}: expected 0 to {network.classes - 1}")


def _labels(network: DiffusersUNet, request: SampleRequest, rows: range) -> Tensor | None:
    if network.classes is None:
        return None
    if request.label is not None:
        return torch.full((len(rows),), request.label)
    return draw_labels(request.seed, rows, network.classes)


def _digests(folder: Path, heads: Path | None) -> dict[str, str]:
    weights = sorted(folder.rglob("*.safetensors"))
    own = {file.relative_to(folder).as_posix(): sha256_of(file) for file in weights}
    return own if heads is None else {**own, "heads": sha256_of(heads)}
