"""Folders of measured images, for `ocm restore`: means, deviations and draws as PNG and Zarr."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL import Image
from tqdm import tqdm

from ocm_core import covariance
from ocm_core.diffusion import timesteps as rules
from ocm_core.diffusion.kernels.ddpm import Ddpm
from ocm_core.errors import OcmError
from ocm_core.io.image_files import read_images
from ocm_core.io.reading import reading
from ocm_core.pipeline.graph import graph_of
from ocm_core.sampling.denoised import (
    check_place,
    labels_of,
    open_model,
    write_picture,
    write_pictures,
    write_store,
)
from ocm_core.sampling.recipe import Recipe
from ocm_core.sampling.request import SampleGenerator
from ocm_core.schema.timesteps import EvenTimesteps, TimestepsParams
from ocm_core.uses import operators
from ocm_core.uses.linear import Measured
from ocm_core.uses.operators import OperatorParams
from ocm_core.uses.restore import PLAIN, Algorithm, restore

STORE, DRAWS = "restored.zarr", "draws"  # in the folder that is written


class RestoredFiles(NamedTuple):
    """What was written."""

    store: Path
    names: list[str]
    draws: int
    passes: int  # of the network for a draw
    chi2: float  # ‖y - A x‖² / σ² per measurement: about 1 if σ is right
    white: float  # the deviation that is white in the pictures

    @property
    def summary(self) -> str:
        """Say what was made, and whether it fits what was measured."""
        return (
            f"{len(self.names)} images, {self.draws} draws of each with {self.passes} passes of the"
            f" network; ‖y - A x‖²/σ² is {self.chi2:.3g} per measurement\n{self.store.parent}:"
            f" mean/, std/ (white is {self.white:.3g}), {DRAWS}/ and {self.store.name}"
        )


def open_for(
    algorithm: Algorithm,
    method: str | None,
    experiment: str | None,
    model: Path | None,
    heads: Path | None,
    **options: Any,
) -> SampleGenerator:
    """Return the model with the method, or with any where the algorithm takes none."""
    if algorithm.takes_method:
        if method is None:
            raise OcmError("--method: kalman takes a covariance; name one, such as analytic+dct")
        return open_model(experiment, model, heads, method=method, **options)
    if method is not None:
        raise OcmError(f"--method {method}: {algorithm.name} takes none; leave it out")
    label = "delta" if model is not None else _lightest(str(experiment))
    return open_model(experiment, model, heads, estimate=False, method=label, **options)


def _lightest(experiment: str) -> str:
    """Return a method that DDIM has and nothing has to be loaded for, if there is one."""
    methods = graph_of(experiment).experiment.methods
    built = {k: m for k, m in covariance.build_all(methods).items() if m.defined_for("ddim")}
    return min(built, key=lambda k: (methods[k].needs != "nothing", built[k].spectrum, k))


def restore_files(
    generator: SampleGenerator,
    images: Path,
    out: Path,
    operator: OperatorParams,
    sigma: float,
    algorithm: Algorithm,
    *,
    mask: Path | None,
    steps: int,
    timesteps: TimestepsParams | None,
    count: int,
    seed: int,
    force: bool,
) -> RestoredFiles:
    """Restore the images of a folder; the store is written last, and whole or not at all."""
    given, store = check_place(out / STORE, generator, force, "restore"), out / STORE
    schedule, rule = generator.denoiser.schedule, timesteps or EvenTimesteps()
    if rule.kind == "optimal":
        raise OcmError("--timesteps optimal: name them, as 10,200,1000, or a rule with a formula")
    visited = rules.build(rule, schedule, steps, given.method.label)
    method = given.method if algorithm.takes_method else PLAIN
    recipe = Recipe(visited, method, Ddpm(), clip=given.clip, guidance=given.guidance)
    known = None if mask is None else _read_mask(mask)
    physics = operators.build(operator, generator.shape, known).to(generator.device)
    reached = physics.A(torch.ones(1, *generator.shape, device=generator.device)) != 0
    names, pixels = read_images(images, tuple(reached.shape[1:]))
    y = (torch.from_numpy(pixels).float().to(generator.device) / 127.5 - 1) * reached
    measured, silent = Measured(y, physics, sigma), not sys.stderr.isatty()
    found = restore(
        *(generator.denoiser, measured, recipe, algorithm),
        count=count,
        labels=labels_of(generator, len(y)),
        batch_size=generator.batch_size,
        seed=seed,
        progress=partial(tqdm, desc="restoring", unit="batch", disable=silent, leave=False),
    )
    mean, std, draws = (value.cpu() for value in found[:3])
    white = write_pictures(out, names, mean, std)
    for name, several in zip(names, draws, strict=True):
        for place, drawn in enumerate(several):
            write_picture((out / DRAWS / name).with_suffix(f".{place}.png"), drawn)
    facts = {
        "files": names,
        "white": white,
        "operator": operator.model_dump(),
        "sigma": sigma,
        "algorithm": algorithm.name,
        "timesteps": [*visited],
        "seed": seed,
    }
    chi2 = float(measured.chi2(found.draws).mean())
    write_store(store, {"mean": mean, "std": std, "draws": draws}, generator, facts)
    return RestoredFiles(store, names, count, found.passes, chi2, white)


def _read_mask(file: Path) -> torch.Tensor:
    """Return 1 where a picture is white and 0 where it is black."""
    if not file.is_file():
        raise OcmError(f"{file}: no such file; expected a PNG, white where pixels are known")
    with reading(file, "a mask in PNG", "save it in black and white"), Image.open(file) as image:
        levels = np.asarray(image.convert("L"))
    if not np.isin(levels, (0, 255)).all():
        raise OcmError(f"{file}: has other levels than black (missing) and white (known)")
    return torch.from_numpy(levels.astype(np.float32) / 255).unsqueeze(0)
