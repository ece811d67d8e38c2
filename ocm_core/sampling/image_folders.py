"""Folders of images, for `ocm denoise` and `ocm restore`: what is made of them as PNG and Zarr."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
import xarray as xr
from PIL import Image
from tqdm import tqdm

from ocm_core import covariance
from ocm_core.errors import OcmError
from ocm_core.io.image_files import read_images
from ocm_core.io.reading import reading
from ocm_core.pipeline.graph import graph_of
from ocm_core.sampling.recipe import Recipe
from ocm_core.sampling.request import SampleGenerator
from ocm_core.schema.timesteps import NamedTimesteps
from ocm_core.text import save_grid
from ocm_core.uses import operators
from ocm_core.uses.denoise import denoise
from ocm_core.uses.linear import Measured
from ocm_core.uses.operators import OperatorParams
from ocm_core.uses.restore import PLAIN, Algorithm, restore

FACTS = ("experiment", "model", "method", "score", "label", "digests")  # that the store keeps
DIMS = ("image", "channel", "row", "column")
DDPM: dict[str, Any] = {"preset": "likelihood", "timesteps": NamedTimesteps()}  # of order 1
Written = tuple[dict[str, Any], str]  # what was written, for scripts and for people


def denoise_files(
    generator: SampleGenerator, images: Path, out: Path, sigma: float | None, force: bool
) -> Written:
    """Denoise the images of a folder; expected errors are roots of an image's mean variance."""
    store = out / "denoised.zarr"
    recipe = _checked(generator, store, force, "denoise")
    names, pixels = read_images(images, generator.shape)
    found = denoise(
        generator.denoiser,
        torch.from_numpy(pixels).float() / 127.5 - 1,
        recipe.method,
        sigma,
        labels=_labels(generator, len(names)),
        clip=recipe.clip,
        batch_size=generator.batch_size,
        progress=_bar("denoising"),
    )
    white = _write(store, names, found._asdict(), generator, {})
    errors = found.std.square().flatten(1).mean(1).sqrt().tolist()
    by_error = sorted(zip(errors, names, strict=True), reverse=True)
    largest = ", ".join(f"{name} ({error:.3g})" for error, name in by_error[:3])
    sigmas = found.sigma.tolist()
    mean, noise = (sum(values) / len(values) for values in (errors, sigmas))
    tree = {"store": str(store), "names": names, "sigma": sigmas}
    return {**tree, "expected_error": errors, "white": white}, (
        f"{len(names)} images with noise of {noise:.3g}: expected errors {mean:.3g} in the mean,"
        f" largest of {largest}\n{out}: mean/, std/ (white is {white:.3g}) and {store.name}"
    )


def method_for(algorithm: Algorithm, method: str | None, experiment: str | None) -> str:
    """Return the method that a model is opened with; where none is asked, the one to load least."""
    if algorithm.takes_method and method is None:
        raise OcmError("--method: kalman takes a covariance; name one, such as analytic+dct")
    if not algorithm.takes_method and method is not None:
        raise OcmError(f"--method {method}: {algorithm.name} takes none; leave it out")
    if method is not None or experiment is None:
        return method or PLAIN.label
    methods = graph_of(experiment).experiment.methods
    built = {k: m for k, m in covariance.build_all(methods).items() if m.defined_for("ddpm")}
    return min(built, key=lambda k: (methods[k].needs != "nothing", built[k].spectrum, k))


def restore_files(
    generator: SampleGenerator,
    operator: OperatorParams,
    mask: Path | None,
    algorithm: Algorithm,
    *,
    images: Path,
    out: Path,
    sigma: float,
    count: int,
    force: bool,
) -> Written:
    """Restore the images of a folder: χ² is ‖y - A x‖² / σ² per measurement, about 1 if σ is right.

    The passes are those of the network for a draw.
    """
    store = out / "restored.zarr"
    recipe = _checked(generator, store, force, "restore")
    known, device = None if mask is None else _read_mask(mask), generator.device
    physics = operators.build(operator, generator.shape, known).to(device)
    reached = physics.A(torch.ones(1, *generator.shape, device=device)) != 0
    names, pixels = read_images(images, tuple(reached.shape[1:]))
    y = (torch.from_numpy(pixels).float().to(device) / 127.5 - 1) * reached
    measured = Measured(y, physics, sigma)
    found = restore(
        *(generator.denoiser, measured, recipe, algorithm),
        count=count,
        labels=_labels(generator, len(y)),
        batch_size=generator.batch_size,
        seed=generator.request.seed,
        progress=_bar("restoring"),
    )
    chi2 = float(measured.chi2(found.draws).mean())
    facts = {"operator": operator.model_dump(), "sigma": sigma, "algorithm": algorithm.name}
    facts |= {"timesteps": [*recipe.timesteps], "seed": generator.request.seed}
    tensors = dict(zip(("mean", "std", "draws"), (x.cpu() for x in found[:3]), strict=True))
    for name, several in zip(names, tensors["draws"], strict=True):
        for place, drawn in enumerate(several):
            _write_picture((out / "draws" / name).with_suffix(f".{place}.png"), drawn)
    white = _write(store, names, tensors, generator, facts)
    tree = {"store": str(store), "names": names, "draws": count, "passes": found.passes}
    return {**tree, "chi2": chi2, "white": white}, (
        f"{len(names)} images, {count} draws of each with {found.passes} passes of the network;"
        f" ‖y - A x‖²/σ² is {chi2:.3g} per measurement\n{out}: mean/, std/ (white is {white:.3g}),"
        f" draws/ and {store.name}"
    )


def _checked(generator: SampleGenerator, store: Path, force: bool, name: str) -> Recipe:
    """Refuse a store that is there, and models of other things than images; return the recipe."""
    if store.exists() and not force:
        raise OcmError(f"{store}: is there already; --force writes it anew")
    if generator.image_shape != generator.shape or not isinstance(generator.recipe, Recipe):
        kind = "points" if generator.image_shape is None else "latents"
        raise OcmError(f"{generator.name}: a model of {kind}; in Python, api.{name} takes latents")
    return generator.recipe


def _labels(generator: SampleGenerator, count: int) -> torch.Tensor | None:
    network, label = generator.denoiser.network, generator.request.label
    if not network.conditional:
        return None
    label = network.null_label if label is None else label
    if label is None:
        raise OcmError("--label: the network takes classes; give the one of these images")
    return torch.full((count,), label)


def _bar(name: str) -> partial[tqdm[int]]:
    silent = not sys.stderr.isatty()
    return partial(tqdm, desc=name, unit="batch", disable=silent, leave=False)


def _read_mask(file: Path) -> torch.Tensor:
    """Return 1 where a picture is white and 0 where it is black."""
    if not file.is_file():
        raise OcmError(f"{file}: no such file; expected a PNG, white where pixels are known")
    with reading(file, "a mask in PNG", "save it in black and white"), Image.open(file) as image:
        levels = np.asarray(image.convert("L"))
    if not np.isin(levels, (0, 255)).all():
        raise OcmError(f"{file}: has other levels than black (missing) and white (known)")
    return torch.from_numpy(levels.astype(np.float32) / 255).unsqueeze(0)


def _write_picture(file: Path, picture: torch.Tensor) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    save_grid(picture.unsqueeze(0), file)


def _write(
    store: Path,
    names: list[str],
    tensors: Mapping[str, torch.Tensor],
    generator: SampleGenerator,
    facts: Mapping[str, Any],
) -> float:
    """Write means and deviations as PNG, and last the store; return the deviation that is white.

    The store, with what it was made by, is there whole or not at all.
    """
    white = float(tensors["std"].max()) or 1.0
    pictures = {"mean": tensors["mean"], "std": 2 * tensors["std"] / white - 1}
    for kind, images in pictures.items():
        for name, picture in zip(names, images, strict=True):
            _write_picture(store.parent / kind / name, picture)
    several = ("image", "draw", *DIMS[1:])
    arrays = {
        name: (several if value.ndim == len(several) else DIMS[: value.ndim], value.numpy())
        for name, value in tensors.items()
    }
    known = {key: generator.attributes[key] for key in FACTS if key in generator.attributes}
    facts = {**known, "files": names, "white": white, **facts, "ocm-core": version("ocm-core")}
    temporary = store.with_name(f"{store.name}.tmp")
    dataset = xr.Dataset(arrays, attrs=facts)
    dataset.to_zarr(temporary, mode="w", consolidated=False, zarr_format=3)
    if store.exists():
        shutil.rmtree(store)
    temporary.rename(store)
    return white
