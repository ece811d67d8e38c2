"""Commands that sample, on request and as a pipeline for diffusers, and how models are opened."""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ocm_core.commands import (
    JSON,
    MODEL,
    NATURAL,
    POSITIVE,
    Argument,
    argument,
    command,
    device,
    known,
    show,
)
from ocm_core.errors import OcmError
from ocm_core.project import model_folder

if TYPE_CHECKING:
    from ocm_core.sampling.request import SampleGenerator


def timesteps_of(text: str) -> Any:
    """Parse `power,exponent=2,first=0.05`, or the timesteps themselves: `10,200,1000`."""
    from ocm_core.schema.timesteps import TimestepsParams

    words = text.split(",")
    if all(word.isdecimal() for word in words):
        values = [[int(word) for word in words]]
        return validated_as(TimestepsParams, "timesteps", text, kind="listed", values=values)
    return validated_as(TimestepsParams, "timesteps", text)


def validated_as(form: Any, option: str, text: str, **tree: Any) -> Any:
    """Return a block of parameters, as a tree or as it was typed: `blur,width=1.5`."""
    import yaml
    from pydantic import create_model

    from ocm_core.params.document import validated

    if not tree:
        kind, *options = (word.partition("=") for word in text.split(","))
        tree = {"kind": kind[0]} | {key: yaml.safe_load(value) for key, _, value in options}
    problems: list[str] = []
    fields: dict[str, Any] = {option: (form, ...)}
    found = validated(create_model("Asked", **fields), {option: tree}, problems)
    if problems:
        raise OcmError(f"--{option} {text}: {'; '.join(problems)}")
    return getattr(found, option)


def order_of(text: str) -> int | str:
    """Parse an order, which has a number or a name; what it means is checked with the recipe."""
    return int(text) if text.isdecimal() else text


def source(parser: ArgumentParser) -> None:
    """Add what samples come from: an experiment, or a folder of a model and a file of heads."""
    group: Any = parser.add_mutually_exclusive_group(required=True)
    argument("experiment", nargs="?", type=known)(group)
    MODEL(group)
    argument("--head FILE", "as api.save_heads wrote it", type=Path)(parser)


def check_paths(
    model: Path | None, head: Path | None, images: Path | None = None, **others: Any
) -> None:
    """Refuse what is not there before slow imports."""
    if head and not model:
        raise OcmError("--head goes with --model; an experiment has heads of its own")
    if model:
        model_folder(model)
    if head and not head.is_file():
        raise OcmError(f"{head}: no such file; expected one that api.save_heads wrote")
    if images and not images.exists():
        raise OcmError(f"{images}: not there; expected a folder, a zip or a tar of images")


def open_model(
    experiment: str | None, model: Path | None, head: Path | None, **options: Any
) -> SampleGenerator:
    """Return the model of an experiment, or of a folder and a file of heads, with a recipe."""
    check_paths(model, head)
    from ocm_core.sampling.from_experiment import from_experiment
    from ocm_core.sampling.request import SampleRequest

    if model is None:
        return from_experiment(str(experiment), SampleRequest(**options))
    from ocm_core.sampling.from_folder import from_folder  # imports diffusers

    return from_folder(model, head, SampleRequest(**options))


def files_in(folder: str) -> tuple[Argument, ...]:
    """Declare where files are written, and how."""
    out = argument("--out FOLDER", f"default: {folder}", type=Path, default=Path(folder))
    return out, argument("--force", "overwrite what is there", action="store_true"), device, JSON


PRESETS = "quality, diverse, likelihood or photographs"
KINDS = "even, optimal, power,exponent=2,first=0.05, …; or 10,200,1000"
ORDER = argument("--order N", "of the step's mean: 1, 2, 3, ipndm or matched", type=order_of)
TIMESTEPS = argument("--timesteps KIND", KINDS, type=timesteps_of)
SCORE = argument("--score NAME", "exact, trained or pretrained, where there are several")
SEED = argument("--seed N", "default: 0", type=NATURAL, default=0)


@command(
    source,
    argument("--method NAME", "covariance method; default: the one of the preset"),
    argument("--preset NAME", f"{PRESETS}: sampler, order, timesteps and method"),
    argument("--steps K", "network evaluations", type=POSITIVE, required=True),
    argument("--sampler NAME", "default: the experiment's first with that method; ddpm"),
    ORDER,
    TIMESTEPS,
    SCORE,
    argument("--guidance W", "1.0 is none", type=float, default=1.0),
    argument("--label N", "one class for all samples", type=NATURAL),
    argument("--prompt TEXT", "of an experiment whose model takes text"),
    argument("--from-data", "begin with the training data's Gaussian", action="store_true"),
    argument("--count N", "default: 64", type=POSITIVE, default=64),
    SEED,
    *files_in("samples"),
)
def sample(count: int, out: Path, force: bool, json: bool, **options: Any) -> None:
    """Generate samples: a grid as PNG, and all of them as Zarr.

    By an experiment whose artifacts are there (`snakemake` or `dvc pull`), with any of its methods
    and any number of steps; or by a model that diffusers wrote (--model), with a file of heads. The
    i-th sample of a seed is always the same, and the same as in the artifacts of the experiment.
    Latents are decoded, and kept as well. Files that are there already stay, but with --force.

    examples:
      ocm sample digits --preset quality --steps 10
      ocm sample digits --method ocm --steps 10 --timesteps optimal
      ocm sample digits --method delta --steps 10 --sampler ddim --seed 1 --count 100
      ocm sample imagenet256 --method ocm --steps 25 --guidance 1.5 --label 207
      ocm sample --model my-model --head heads.safetensors --method ocm --steps 10
    """
    generator = open_model(**options)
    from ocm_core.sampling.request import write

    show(json, *write(generator, count, out, force))


@command(
    argument("experiment", type=known),
    argument("folder", "a new one", type=Path),
    argument("--method NAME", "default: the one of the preset, or ocm"),
    argument("--preset NAME", PRESETS),
    argument("--sampler NAME", "default: the first with that method"),
    ORDER,
    TIMESTEPS,
    argument("--steps K", "of the card's example; 10", type=POSITIVE, default=10),
    device,
    JSON,
)
def export(experiment: str, folder: Path, json: bool, **request: Any) -> None:
    """Write an experiment on a model of diffusers as a pipeline that diffusers opens.

    Without --method, --preset and --sampler it samples in the way that came out best with as many
    evaluations. The folder has the model, the heads of the method, a scheduler whose configuration
    holds method, timesteps, order and limits, and a model card:
    `DiffusionPipeline.from_pretrained(FOLDER, custom_pipeline=FOLDER, trust_remote_code=True)`
    opens it wherever this package is installed.

    examples:
      ocm export mine pipelines/mine --steps 10                  the best that was measured
      ocm export mine pipelines/mine --method ocm --steps 10
      ocm export mine pipelines/mine --preset quality --steps 10
    """
    from ocm_core.export.from_experiment import export
    from ocm_core.sampling.request import SampleRequest

    made = str(export(experiment, folder, SampleRequest(**request)))
    call = f"from_pretrained({made!r}, custom_pipeline={made!r}, trust_remote_code=True)"
    show(json, {"folder": made}, f"{made}: open it with DiffusionPipeline.{call}")
