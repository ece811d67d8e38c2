"""Folders of noisy images, for `ocm denoise`: means and deviations as PNG, and both as Zarr."""

from __future__ import annotations

import shutil
import sys
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import torch
from tqdm import tqdm

from ocm_core import covariance
from ocm_core.errors import OcmError
from ocm_core.io.image_files import read_images
from ocm_core.pipeline.graph import graph_of
from ocm_core.sampling.from_experiment import from_experiment
from ocm_core.sampling.recipe import Recipe
from ocm_core.sampling.request import SampleGenerator, SampleRequest
from ocm_core.text import save_grid
from ocm_core.uses.denoise import Denoised, check_estimate, denoise

STORE, MEAN, STD = "denoised.zarr", "mean", "std"  # in the folder that is written
FACTS = ("experiment", "model", "method", "score", "label", "digests")  # that the store keeps


class DenoisedFiles(NamedTuple):
    """What was written: expected errors are roots of an image's mean variance."""

    store: Path
    names: list[str]
    sigma: list[float]
    expected_error: list[float]
    white: float  # the deviation that is white in the pictures

    @property
    def summary(self) -> str:
        """Say how large the errors are expected to be, and where they are largest."""
        by_error = sorted(zip(self.expected_error, self.names, strict=True), reverse=True)
        least = ", ".join(f"{name} ({error:.3g})" for error, name in by_error[:3])
        mean, sigma = (sum(v) / len(v) for v in (self.expected_error, self.sigma))
        return (
            f"{len(self.names)} images with noise of {sigma:.3g}: expected errors {mean:.3g} in the"
            f" mean, largest of {least}\n{self.store.parent}: {MEAN}/, {STD}/ (white is"
            f" {self.white:.3g}) and {self.store.name}"
        )


def open_model(
    experiment: str | None, model: Path | None, heads: Path | None, **options: Any
) -> SampleGenerator:
    """Return the model with a method; of its recipe, the method and its limits are what counts."""
    # a recipe of few steps that needs no optimal timesteps
    request = SampleRequest(steps=2, preset="quality", **options)
    method = str(request.method)
    if model is not None:
        from ocm_core.sampling.from_folder import from_folder  # imports diffusers

        check_estimate(covariance.build(method))
        return from_folder(model, heads, request)
    known = graph_of(str(experiment)).experiment.methods.get(method)
    if known is not None:
        check_estimate(covariance.build(known.kind, method, **known.options))
    return from_experiment(str(experiment), request)


def denoise_files(
    generator: SampleGenerator, images: Path, out: Path, sigma: float | None, force: bool
) -> DenoisedFiles:
    """Denoise the images of a folder; the store is written last, and whole or not at all."""
    store, recipe = out / STORE, generator.recipe
    if store.exists() and not force:
        raise OcmError(f"{store}: is there already; --force writes it anew")
    if generator.image_shape != generator.shape or not isinstance(recipe, Recipe):
        kind = "points" if generator.image_shape is None else "latents"
        raise OcmError(f"{generator.name}: a model of {kind}; in Python, api.denoise takes latents")
    names, pixels = read_images(images, generator.shape)
    noisy = torch.from_numpy(pixels).float() / 127.5 - 1
    shown = not sys.stderr.isatty()
    found = denoise(
        generator.denoiser,
        noisy,
        recipe.method,
        sigma,
        labels=_labels(generator, len(noisy)),
        clip=recipe.clip,
        batch_size=generator.batch_size,
        progress=partial(tqdm, desc="denoising", unit="batch", disable=shown, leave=False),
    )
    white = float(found.std.max())
    for name, mean, std in zip(names, found.mean, found.std, strict=True):
        for kind, picture in {MEAN: mean, STD: 2 * std / white - 1}.items():
            file = out / kind / name
            file.parent.mkdir(parents=True, exist_ok=True)
            save_grid(picture.unsqueeze(0), file)
    facts = {key: generator.attributes[key] for key in FACTS if key in generator.attributes}
    _write(store, found, {**facts, "files": names, "white": white, "ocm-core": version("ocm-core")})
    errors = found.std.square().flatten(1).mean(1).sqrt().tolist()
    return DenoisedFiles(store, names, found.sigma.tolist(), errors, white)


def _labels(generator: SampleGenerator, count: int) -> torch.Tensor | None:
    network, label = generator.denoiser.network, generator.request.label
    if not network.conditional:
        return None
    label = network.null_label if label is None else label
    if label is None:
        raise OcmError("--label: the network takes classes; give the one of these images")
    return torch.full((count,), label)


def _write(store: Path, found: Denoised, facts: dict[str, Any]) -> None:
    import xarray as xr

    dims = ("image", "channel", "row", "column")
    arrays = {name: (dims[: value.ndim], value.numpy()) for name, value in found._asdict().items()}
    temporary = store.with_name(f"{store.name}.tmp")
    dataset = xr.Dataset(arrays, attrs=facts)
    dataset.to_zarr(temporary, mode="w", consolidated=False, zarr_format=3)
    if store.exists():
        shutil.rmtree(store)
    temporary.rename(store)
