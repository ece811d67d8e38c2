"""Samples by a model that diffusers wrote, with a file of heads, by means of `ocm_core/api.py`."""

from functools import partial
from pathlib import Path

import torch

from ocm_core import api
from ocm_core.checkpoints.diffusers_folder import describe
from ocm_core.errors import OcmError
from ocm_core.features.images import Decode, identity, in_batches
from ocm_core.io.checksums import sha256_of
from ocm_core.latents.vae import Vae
from ocm_core.pipeline.job import available_device
from ocm_core.sampling.presets import preset_named
from ocm_core.sampling.request import SampleGenerator, SampleRequest
from ocm_core.sampling.start import warn_of_prior

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
    if request.from_data:
        raise OcmError("--from-data: no images here; in Python, api.sample(…, start=images)")
    method = request.method or preset_named(request.preset).method
    torch.set_num_threads(request.threads)
    device = available_device(request.device)
    denoiser = api.load(folder, device)
    if heads is not None:
        denoiser = api.load_heads(denoiser, heads)
    recipe = api.recipe(
        denoiser,
        method,
        steps=request.steps,
        preset=request.preset,
        sampler=request.sampler,
        order=request.order,
        timesteps=request.timesteps,
    )
    warn_of_prior(denoiser.schedule, recipe.timesteps)
    shape = image_shape = described.shape
    if shape is None:
        raise OcmError(f"{folder}: config.json: sample_size: null; expected the side of the images")
    to_images: Decode = identity
    if described.vae:
        vae = Vae.load(folder / "vae", device)
        to_images, sides = (
            partial(in_batches, vae.decode, DECODED),
            [vae.downsampling * n for n in shape[1:]],
        )
        image_shape = vae.model.config["out_channels"], *sides
    name, kernel = folder.resolve().name, recipe.kernel.name
    files = {f.relative_to(folder).as_posix(): f for f in sorted(folder.rglob("*.safetensors"))}
    if heads is not None:
        files["heads"] = heads
    keys = ("order", "timesteps", "posterior_factor", "final_sigma")
    chosen = {key: getattr(recipe, key) for key in keys} | {"timesteps": [*recipe.timesteps]}
    return SampleGenerator(
        name=f"{name}-{request.preset or kernel}-{method}-nfe{request.steps}{request.suffix}",
        request=request,
        recipe=recipe,
        denoiser=denoiser,
        device=device,
        classes=described.classes or 0,
        batch_size=BATCH,
        shape=shape,
        image_shape=image_shape,
        to_images=to_images,
        attributes={
            "model": name,
            "method": method,
            "steps": request.steps,
            "seed": request.seed,
            "sampler": {"kind": kernel, **recipe.kernel.model_dump(), **chosen},
            "label": request.label,
            "digests": {file: sha256_of(path) for file, path in files.items()},
        },
    )
