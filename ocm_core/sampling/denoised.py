"""Folders of noisy images, for `ocm denoise`: means and deviations as PNG, and both as Zarr."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping
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
from ocm_core.shapes import Images
from ocm_core.text import save_grid
from ocm_core.uses.denoise import check_estimate, denoise

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
    experiment: str | None,
    model: Path | None,
    heads: Path | None,
    estimate: bool = True,
    **options: Any,
) -> SampleGenerator:
    """Return the model with a method; of its recipe, the method and its limits are what counts.

    The method is an `estimate` of Cov[x_0 | x_t] with a diagonal, or any that DDIM has.
    """
    # a recipe of few steps that needs no optimal timesteps
    request = SampleRequest(steps=2, preset="quality", **options)
    method = str(request.method)
    if model is not None:
        from ocm_core.sampling.from_folder import from_folder  # imports diffusers

        if estimate:
            check_estimate(covariance.build(method))
        return from_folder(model, heads, request)
    known = graph_of(str(experiment)).experiment.methods.get(method)
    if known is not None and estimate:
        check_estimate(covariance.build(known.kind, method, **known.options))
    return from_experiment(str(experiment), request)


def denoise_files(
    generator: SampleGenerator, images: Path, out: Path, sigma: float | None, force: bool
) -> DenoisedFiles:
    """Denoise the images of a folder; the store is written last, and whole or not at all."""
    store, recipe = out / STORE, check_place(out / STORE, generator, force, "denoise")
    names, pixels = read_images(images, generator.shape)
    noisy = torch.from_numpy(pixels).float() / 127.5 - 1
    shown = not sys.stderr.isatty()
    found = denoise(
        generator.denoiser,
        noisy,
        recipe.method,
        sigma,
        labels=labels_of(generator, len(noisy)),
        clip=recipe.clip,
        batch_size=generator.batch_size,
        progress=partial(tqdm, desc="denoising", unit="batch", disable=shown, leave=False),
    )
    white = write_pictures(out, names, found.mean, found.std)
    write_store(store, found._asdict(), generator, {"files": names, "white": white})
    errors = found.std.square().flatten(1).mean(1).sqrt().tolist()
    return DenoisedFiles(store, names, found.sigma.tolist(), errors, white)


def check_place(store: Path, generator: SampleGenerator, force: bool, name: str) -> Recipe:
    """Refuse a store that is there, and models of other things than images; return the recipe."""
    recipe = generator.recipe
    if store.exists() and not force:
        raise OcmError(f"{store}: is there already; --force writes it anew")
    if generator.image_shape != generator.shape or not isinstance(recipe, Recipe):
        kind = "points" if generator.image_shape is None else "latents"
        raise OcmError(f"{generator.name}: a model of {kind}; in Python, api.{name} takes latents")
    return recipe


def write_pictures(out: Path, names: list[str], mean: Images, std: Images) -> float:
    """Write both as PNG, and return the deviation that is white."""
    white = float(std.max()) or 1.0
    for kind, images in {MEAN: mean, STD: 2 * std / white - 1}.items():
        for name, picture in zip(names, images, strict=True):
            write_picture(out / kind / name, picture)
    return white


def write_picture(file: Path, picture: torch.Tensor) -> None:
    """Write an image in [-1, 1] as PNG."""
    file.parent.mkdir(parents=True, exist_ok=True)
    save_grid(picture.unsqueeze(0), file)


def labels_of(generator: SampleGenerator, count: int) -> torch.Tensor | None:
    network, label = generator.denoiser.network, generator.request.label
    if not network.conditional:
        return None
    label = network.null_label if label is None else label
    if label is None:
        raise OcmError("--label: the network takes classes; give the one of these images")
    return torch.full((count,), label)


def write_store(
    store: Path,
    tensors: Mapping[str, torch.Tensor],
    generator: SampleGenerator,
    facts: Mapping[str, Any],
) -> None:
    """Write a store of images, with what they were made by; it is there whole or not at all."""
    import xarray as xr

    dims = ("image", "channel", "row", "column")
    several = ("image", "draw", *dims[1:])
    arrays = {
        name: (several if value.ndim == len(several) else dims[: value.ndim], value.numpy())
        for name, value in tensors.items()
    }
    known = {key: generator.attributes[key] for key in FACTS if key in generator.attributes}
    temporary = store.with_name(f"{store.name}.tmp")
    dataset = xr.Dataset(arrays, attrs={**known, **facts, "ocm-core": version("ocm-core")})
    dataset.to_zarr(temporary, mode="w", consolidated=False, zarr_format=3)
    if store.exists():
        shutil.rmtree(store)
    temporary.rename(store)
