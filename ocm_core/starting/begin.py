"""`ocm init`: look, write, measure, write the sizes that fit, and say what to type."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from ocm_core.checkpoints.diffusers_folder import ModelDescription, describe
from ocm_core.errors import OcmError
from ocm_core.io.atomic import write_text
from ocm_core.io.disk import room_for
from ocm_core.params.compose import compose
from ocm_core.params.resolved import overlay as overlay_file
from ocm_core.pipeline import generated_files
from ocm_core.planning.run_time import duration
from ocm_core.project import is_checkout
from ocm_core.starting.images import look, look_at_captions
from ocm_core.starting.overlay import Start, text, with_learned_variance
from ocm_core.starting.pace import fitting_sizes, measured
from ocm_core.starting.project import activate, make_project

NAME = re.compile(r"[a-z][a-z0-9_]*")


def begin(
    name: str,
    images: Path,
    model: Path | None,
    captions: Path | None = None,
    side: int | None = None,
    smoke: bool = False,
    force: bool = False,
) -> Iterator[str]:
    """What was found, line by line, while the files are being written."""
    file = overlay_file(name)
    if not NAME.fullmatch(name):
        raise OcmError(f"{name!r}: expected a name of lower-case letters, digits and _")
    if file.exists() and not force:
        raise OcmError(f"{file}: is there already; choose another name, or give --force")
    described = describe(model) if model else None
    start = Start(name, look(images), described, side=side, smoke=smoke)
    _refuse(start, captions)
    if captions:
        start = replace(start, captions=look_at_captions(captions, images))
    yield f"{images}: {start.images}"
    if start.captions:
        yield f"{captions}: {start.captions}"
    if start.model:
        yield f"{model}: {_said(start.model)}"
    before = file.read_bytes() if file.exists() else None
    try:
        with room_for(file):
            yield from _write(start, file)
    except BaseException:
        file.unlink(missing_ok=True) if before is None else file.write_bytes(before)
        raise
    yield from _advice(name)


def _refuse(start: Start, captions: Path | None) -> None:
    model, found = start.model, start.images
    if model and model.classes and not found.folders:
        raise OcmError(
            f"{found.path}: the model in {model.folder} takes labels of {model.classes} classes,"
            " and the images lie in no sub-folders; put each class into one"
        )
    if model and model.text and not captions:
        raise OcmError(
            f"--captions: the model in {model.folder} takes text, so each image needs a caption; "
            "give a CSV with the columns file and caption"
        )


def _said(model: ModelDescription) -> str:
    size = "any size" if model.shape is None else "×".join(map(str, model.shape))
    classes = f"{model.classes} classes" if model.classes else "no classes"
    if model.text:
        classes = f"takes text of {model.text.tokens} tokens"
    steps = model.schedule["steps"]
    schedule = f"{model.schedule['beta_schedule']} schedule of {steps} steps"
    if model.zero_snr:
        schedule += f" (the last of {steps + 1} is pure noise, and outside every chain)"
    latent = ", with its autoencoder" if model.vae else ""
    count = f"{model.parameters / 1e6:.1f} M parameters"
    return (
        f"{model.kind}, {size}, {classes}, predicts {model.prediction}, {schedule}, {count}{latent}"
    )


def _write(start: Start, file: Path) -> Iterator[str]:
    make_project()
    write_text(file, text(start))
    experiment = compose(start.name)
    pace = measured(experiment)
    learned = with_learned_variance(experiment) if start.learns_variance else {}
    sized = replace(start, sizes={**fitting_sizes(experiment, pace), **learned})
    write_text(file, text(sized))
    experiment = compose(start.name)
    write_text(file, text(replace(sized, hours=pace.hours(experiment))))
    activate(start.name)
    generated_files.write()
    evaluation = pace.times.evaluation
    yield f"{file}: written; {evaluation:.3g} ms for one evaluation of the network on {pace.device}"
    yield f"about {duration(pace.total(experiment))} of one thread or GPU, by that and by counts"


def _advice(name: str) -> Iterator[str]:
    if not is_checkout() and shutil.which("git") and not Path(".dvc").is_dir():
        git = "" if Path(".git").exists() else "git init && "
        yield f"to keep every version of it: {git}dvc init, before the run"
    yield f"run: snakemake --cores 2 reports/{name}.html"
