"""Generate samples: a grid as PNG, and all of them as Zarr.

By an experiment whose artifacts are there (`snakemake` or `dvc pull`), with any of its methods and
any number of steps; or by a model that diffusers wrote (--model), with a file of heads. The i-th
sample of a seed is always the same, and the same as in the artifacts of the experiment. Latents are
decoded, and kept as well. Exits with 1 if something is missing, or if the files are there already
and --force is not given.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ocm_core.commands._arguments import add_device, add_json, as_json, at_least_one, at_least_zero
from ocm_core.errors import OcmError

if TYPE_CHECKING:
    from ocm_core.schema.timesteps import TimestepsParams

EXAMPLES = """
  ocm sample digits --preset quality --steps 10
  ocm sample digits --method ocm --steps 10 --timesteps optimal
  ocm sample digits --method delta --steps 10 --sampler ddim --seed 1 --count 100
  ocm sample imagenet256 --method ocm --steps 25 --guidance 1.5 --label 207
  ocm sample --model my-model --head heads.safetensors --method ocm --steps 10
"""


_OF_REQUEST = (
    "method",
    "steps",
    "seed",
    "sampler",
    "preset",
    "order",
    "score",
    "guidance",
    "label",
    "prompt",
)


def add(parser: argparse.ArgumentParser) -> None:
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("experiment", nargs="?")
    source.add_argument("--model", type=Path, metavar="FOLDER", help="as save_pretrained wrote it")
    parser.add_argument("--head", type=Path, metavar="FILE", help="as api.save_heads wrote it")
    parser.add_argument(
        "--method", metavar="NAME", help="covariance method; default: the one of the preset"
    )
    parser.add_argument(
        "--preset",
        metavar="NAME",
        help="quality, diverse or likelihood: sampler, order, timesteps and method for these steps",
    )
    parser.add_argument(
        "--steps", type=at_least_one, required=True, metavar="K", help="network evaluations"
    )
    parser.add_argument(
        "--sampler", metavar="NAME", help="default: the experiment's first with that method; ddpm"
    )
    parser.add_argument("--order", type=int, metavar="N", help="of the step's mean: 1, 2 or 3")
    parser.add_argument(
        "--timesteps",
        metavar="KIND",
        help="even, optimal, power,exponent=2,first=0.05, …; or 10,200,1000",
    )
    parser.add_argument(
        "--score", metavar="NAME", help="exact, trained or pretrained, where there are several"
    )
    parser.add_argument("--guidance", type=float, default=1.0, metavar="W", help="1.0 is none")
    parser.add_argument(
        "--label", type=at_least_zero, metavar="N", help="one class for all samples"
    )
    parser.add_argument("--prompt", metavar="TEXT", help="of an experiment whose model takes text")
    parser.add_argument("--count", type=at_least_one, default=64, metavar="N", help="default: 64")
    parser.add_argument("--seed", type=at_least_zero, default=0, metavar="N", help="default: 0")
    parser.add_argument(
        "--out", type=Path, default=Path("samples"), metavar="FOLDER", help="default: samples"
    )
    parser.add_argument("--force", action="store_true", help="overwrite what is there")
    add_device(parser)
    add_json(parser)


def timesteps_of(text: str) -> TimestepsParams:
    """`power,exponent=2,first=0.05`, or the timesteps themselves: `10,200,1000`."""
    import yaml
    from pydantic import TypeAdapter, ValidationError

    from ocm_core.schema.timesteps import TimestepsParams

    words = text.split(",")
    tree: dict[str, Any]
    if all(word.isdecimal() for word in words):
        tree = {"kind": "listed", "values": [[int(word) for word in words]]}
    else:
        kind, *options = (word.partition("=") for word in words)
        tree = {"kind": kind[0]} | {key: yaml.safe_load(value) for key, _, value in options}
    try:
        timesteps: TimestepsParams = TypeAdapter(TimestepsParams).validate_python(tree)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        key = ".".join(map(str, problem["loc"]))
        raise OcmError(f"--timesteps {text}: {key} {problem['msg'].lower()}") from None
    return timesteps


def run(arguments: argparse.Namespace) -> int:
    if arguments.head and not arguments.model:
        raise OcmError("--head goes with --model; an experiment has heads of its own")
    from ocm_core.sampling.request import SampleRequest, write

    request = SampleRequest(
        **{name: getattr(arguments, name) for name in _OF_REQUEST},
        timesteps=timesteps_of(arguments.timesteps) if arguments.timesteps else None,
        device=arguments.device,
        threads=arguments.threads,
    )
    if arguments.model:
        from ocm_core.sampling.from_folder import from_folder

        generator = from_folder(arguments.model, arguments.head, request)
    else:
        from ocm_core.sampling.from_experiment import from_experiment

        generator = from_experiment(arguments.experiment, request)
    files = write(generator, arguments.count, arguments.out, arguments.force)
    if arguments.json:
        named = {name: None if path is None else str(path) for name, path in vars(files).items()}
        print(as_json({**named, "count": arguments.count}))
    else:
        print(f"{arguments.count} samples: {', '.join(map(str, files.all))}")
    return 0
