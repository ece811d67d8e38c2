"""Samples of a model that diffusers wrote, with a file of heads: `ocm_core/api.py` as a command."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

from ocm_core import api, covariance
from ocm_core.covariance.interface import check_defined
from ocm_core.diffusion.denoiser import Denoiser
from ocm_core.errors import OcmError, unknown
from ocm_core.generate.request import Source, Wish, decoded_as_it_is
from ocm_core.networks.diffusers_unet import DiffusersUNet
from ocm_core.pipeline.job import found_device
from ocm_core.pipeline.manifests import file_digest
from ocm_core.rng.noise import draw_labels
from ocm_core.samplers.ancestral import Watcher
from ocm_core.store.writer import ShardValues

LEVELS = 256
BATCH = 64


def from_folder(folder: Path, heads: Path | None, wish: Wish) -> Source:
    if wish.score is not None or wish.guidance != 1.0:
        raise OcmError("--score and --guidance belong to experiments; leave them out with --model")
    sampler: Any = wish.sampler or "ddpm"
    if sampler not in api.KERNELS:
        raise OcmError(f"--sampler: {unknown(sampler, api.KERNELS)}")
    check_defined(covariance.build(wish.method), api.KERNELS[sampler])
    torch.set_num_threads(wish.threads)
    denoiser = api.load(folder, found_device(wish.device))
    if heads is not None:
        denoiser = api.load_heads(denoiser, heads)
    _check_method(denoiser, wish.method)
    network = cast(DiffusersUNet, denoiser.network)
    shape = _shape(network, folder)
    _check_label(network, wish.label)

    def draw(rows: range, watch: Watcher) -> ShardValues:
        labels = _labels(network, wish, rows)
        x = api.sample(
            denoiser,
            shape,
            wish.method,
            steps=wish.steps,
            count=len(rows),
            first=rows.start,
            seed=wish.seed,
            sampler=sampler,
            labels=labels,
            batch_size=len(rows),
            watch=watch,
        )
        values = {"x": x.cpu().numpy()}
        return values if labels is None else {**values, "label": labels.numpy()}

    suffix = "" if wish.label is None else f"-label{wish.label}"
    return Source(
        name=f"{folder.resolve().name}-{sampler}-{wish.method}-K{wish.steps}-seed{wish.seed}{suffix}",
        shape=shape,
        image_shape=shape,
        levels=LEVELS,
        to_images=decoded_as_it_is,
        labelled=network.conditional,
        steps=wish.steps,
        batch_size=BATCH,
        draw=draw,
        attributes={
            "model": folder.resolve().name,
            "method": wish.method,
            "steps": wish.steps,
            "seed": wish.seed,
            "sampler": sampler,
            "label": wish.label,
            "digests": _digests(folder, heads),
        },
    )


def _check_method(denoiser: Denoiser, method: str) -> None:
    """What it needs is at hand, said before the first step."""
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


def _labels(network: DiffusersUNet, wish: Wish, rows: range) -> Tensor | None:
    if network.classes is None:
        return None
    if wish.label is not None:
        return torch.full((len(rows),), wish.label)
    return draw_labels(wish.seed, rows, network.classes)


def _digests(folder: Path, heads: Path | None) -> dict[str, str]:
    weights = sorted(folder.rglob("*.safetensors"))
    own = {file.relative_to(folder).as_posix(): file_digest(file) for file in weights}
    return own if heads is None else {**own, "heads": file_digest(heads)}
