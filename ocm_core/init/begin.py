"""Look at images and model, write the experiment, and say how long it takes and how to run it."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ocm_core.errors import OcmError
from ocm_core.init.images import look, look_at_captions
from ocm_core.init.overlay import SIDES, Start, text, with_learned_variance
from ocm_core.init.project import keep_out_of_git, make_project
from ocm_core.io.atomic import room_for, write_text
from ocm_core.project import is_checkout, model_folder, shipped

if TYPE_CHECKING:
    from ocm_core.checkpoints.diffusers_folder import ModelDescription

NAME = re.compile(r"[a-z][a-z0-9_]*")
EXPERIMENTS = Path("params/experiment")
DISTILLED = ("LCMScheduler", "TCDScheduler")  # of models that take a few fixed steps


def begin(
    name: str,
    images: Path,
    model: Path | None,
    captions: Path | None = None,
    side: int | None = None,
    force: bool = False,
) -> Iterator[str]:
    """Yield what was found, line by line, while the files are being written."""
    file = EXPERIMENTS / f"{name}.yaml"
    _check_paths(name, file, captions, force)
    folder, summary = model_folder(model) if model else None, look(images)
    start = Start(name, summary, _described(folder) if folder else None, side=side)
    _refuse(start, captions)
    if captions:
        start = replace(start, captions=look_at_captions(captions, images))
    yield f"{images}: {start.images}"
    yield from start.treatment()
    if start.captions:
        yield f"{captions}: {start.captions}"
    if start.model:
        yield f"{model}: {_summary(start.model)}"
    before = file.read_bytes() if file.exists() else None
    try:
        with room_for(file):
            yield from _write(start, file)
    except BaseException:
        file.unlink(missing_ok=True) if before is None else file.write_bytes(before)
        raise
    keep_out_of_git(path for path in (images, model) if path)
    yield from _advice(name)


def _check_paths(name: str, file: Path, captions: Path | None, force: bool) -> None:
    """Refuse wrong names and paths before anything is imported that takes time."""
    if not NAME.fullmatch(name):
        raise OcmError(f"{name!r}: expected a name of lower-case letters, digits and _")
    if not is_checkout() and (shipped() / file).exists():
        raise OcmError(f"{name!r}: the name of an experiment of the package; choose another one")
    if file.exists() and not force:
        raise OcmError(f"{file}: exists already; choose another name, or give --force")
    if captions and not captions.is_file():
        raise OcmError(f"{captions}: no such file; expected a CSV with file and caption")


def _described(folder: Path) -> ModelDescription:
    from ocm_core.checkpoints.diffusers_folder import describe

    model = describe(folder)
    scheduler = json.loads(model.scheduler_file.read_text()).get("_class_name")
    if scheduler in DISTILLED:
        raise OcmError(
            f"{model.scheduler_file}: {scheduler}: a distilled model jumps over its timesteps, and "
            "is no noise prediction; expected the model that it was distilled from"
        )
    return model


def _refuse(start: Start, captions: Path | None) -> None:
    model, images = start.model, start.images
    if model is None and start.side not in (None, *SIDES):
        sides = ", ".join(map(str, SIDES))
        raise OcmError(f"--side {start.side}: the network that is trained here takes {sides}")
    if model and model.classes and not images.folders:
        raise OcmError(
            f"{images.path}: the model in {model.folder} takes labels of {model.classes} classes,"
            " and the images lie in no sub-folders; put each class into one"
        )
    if model and model.text and not captions:
        raise OcmError(
            f"--captions: the model in {model.folder} takes text, so each image needs a caption; "
            "give a CSV with the columns file and caption"
        )


def _summary(model: ModelDescription) -> str:
    size = "any size" if model.shape is None else "×".join(map(str, model.shape))
    classes = f"{model.classes} classes" if model.classes else "no classes"
    if model.text:
        classes = f"takes text of {model.text.tokens} tokens"
    steps = model.schedule["steps"]
    schedule = f"{model.schedule['beta_schedule']} schedule of {steps} steps"
    if model.schedule["rescale_betas_zero_snr"]:
        schedule += f" (the last of {steps + 1} is pure noise, and never visited)"
    latent = ", with its autoencoder" if model.vae else ""
    count = f"{model.parameters / 1e6:.1f} M parameters"
    return (
        f"{model.kind}, {size}, {classes}, predicts {model.prediction}, {schedule}, {count}{latent}"
    )


def _write(start: Start, file: Path) -> Iterator[str]:
    """Write the overlay twice: to compose and measure it, and with the sizes that fit."""
    from ocm_core.doctor.pace import pace_of, this_device
    from ocm_core.doctor.times import duration, phase_seconds
    from ocm_core.init.sizes import fitting_sizes
    from ocm_core.params.compose import compose
    from ocm_core.pipeline.graph import Graph

    make_project()
    write_text(file, text(start))
    experiment, device = compose(start.name), this_device()
    fitting = fitting_sizes(experiment, device)
    learned = with_learned_variance(experiment) if start.learns_variance else {}
    sized = compose(start.name, [f"{key}={size}" for key, size in fitting.items()])
    seconds = phase_seconds(Graph(sized), device)
    hours = {phase: f"about {duration(count)}" for phase, count in seconds.items()}
    write_text(file, text(replace(start, sizes={**fitting, **learned}, hours=hours)))
    yield f"{file}: written; {pace_of(experiment, device)}"
    yield f"about {duration(sum(seconds.values()))} of one thread or GPU, by that and by counts"


def _advice(name: str) -> Iterator[str]:
    if not is_checkout() and shutil.which("git") and not Path(".dvc").is_dir():
        git = "" if Path(".git").exists() else "git init && "
        yield f"to keep every version of it: {git}dvc init, before the run"
    yield f"try every stage in small: snakemake --cores 2 reports/{name}_smoke.html"
    yield f"run: snakemake --cores 2 reports/{name}.html"
