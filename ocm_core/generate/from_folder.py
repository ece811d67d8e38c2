"""Samples by a model that diffusers wrote, with a file of heads, by means of `ocm_core/api.py`."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

from ocm_core import api, covariance
from ocm_core.covariance.interface import check_defined
from ocm_core.diffusion.denoiser import Denoiser
from ocm_core.errors import OcmError, unknown
from ocm_core.generate.request import SampleGenerator, SampleRequest, identity
from ocm_core.io.digests import sha256_of
from ocm_core.networks.diffusers_unet import DiffusersUNet
from ocm_core.pipeline.job import found_device
from ocm_core.rng.noise import draw_labels
from ocm_core.samplers.ancestral import Watcher
from ocm_core.store.writer import ShardValues

LEVELS = 256
BATCH = 64


def from_folder(folder: Path, heads: Path | None, request: SampleRequest) -> SampleGenerator:
    """`folder` as `save_pretrained` wrote it, `heads` as `api.save_heads` did."""
    if request.score is not None or request.guidance != 1.0:
        raise OcmError("--score and --guidance belong to experiments; leave them out with --model")
    sampler: Any = request.sampler or "ddpm"
    if sampler not in api.KERNELS:
        raise OcmError(f"--sampler: {unknown(sampler, api.KERNELS)}")
    check_defined(covariance.build(request.method), api.KERNELS[sampler])
    torch.set_num_threads(request.threads)
    denoiser = api.load(folder, found_device(request.device))
    if heads is not None:
        denoiser = api.load_heads(denoiser, heads)
    _check_method(denoiser, request.method)
    network = cast(DiffusersUNet, denoiser.network)
    shape = _shape(network, folder)
    _check_label(network, request.label)

    def draw(rows: range, watch: Watcher) -> ShardValues:
        labels = _labels(network, request, rows)
        x = api.sample(
            denoiser,
            shape,
            request.method,
            steps=request.steps,
            count=len(rows),
            first=rows.start,
            seed=request.seed,
            sampler=sampler,
            labels=labels,
            batch_size=len(rows),
            watch=watch,
        )
        values = {"x": x.cpu().numpy()}
        return values if labels is None else {**values, "label": labels.numpy()}

    run = f"{sampler}-{request.method}-K{request.steps}"
    return SampleGenerator(
        name=f"{folder.resolve().name}-{run}{request.suffix}",
        shape=shape,
        image_shape=shape,
        levels=LEVELS,
        to_images=identity,
        labelled=network.conditional,
        steps=request.steps,
        batch_size=BATCH,
        draw=draw,
        attributes={
            "model": folder.resolve().name,
            "method": request.method,
            "steps": request.steps,
            "seed": request.seed,
            "sampler": sampler,
            "label": request.label,
            "digests": _digests(folder, heads),
        },
    )


def _check_method(denoiser: Denoiser, method: str) -> None:
    """Raise before the first step if the method needs what is not there."""
    match covariance.describe(method, {}).needs:
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
