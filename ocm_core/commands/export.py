"""Write an experiment on a model of diffusers as a pipeline that diffusers opens.

The folder has the model, the heads of the method, a scheduler whose configuration holds method,
timesteps, order and limits, and a model card: `DiffusionPipeline.from_pretrained(FOLDER,
custom_pipeline=FOLDER, trust_remote_code=True)` opens it wherever this package is installed.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from ocm_core.commands._arguments import add_device, add_json, as_json, at_least_one
from ocm_core.commands.sample import timesteps_of

EXAMPLES = """
  ocm export mine pipelines/mine --method ocm --steps 10
  ocm export mine pipelines/mine --preset quality --steps 10
"""


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("experiment")
    parser.add_argument("folder", type=Path, help="a new one")
    parser.add_argument("--method", metavar="NAME", help="default: the one of the preset, or ocm")
    parser.add_argument("--preset", metavar="NAME", help="quality, diverse or likelihood")
    parser.add_argument("--sampler", metavar="NAME", help="default: the first with that method")
    parser.add_argument("--order", type=int, metavar="N", help="of the step's mean: 1, 2 or 3")
    parser.add_argument("--timesteps", metavar="KIND", help="as in `ocm sample`")
    parser.add_argument(
        "--steps", type=at_least_one, default=10, metavar="K", help="of the card's example; 10"
    )
    add_device(parser)
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    from ocm_core.export.from_experiment import export
    from ocm_core.sampling.request import SampleRequest

    method = arguments.method or (None if arguments.preset else "ocm")
    request = SampleRequest(
        method=method,
        steps=arguments.steps,
        seed=0,
        sampler=arguments.sampler,
        preset=arguments.preset,
        order=arguments.order,
        timesteps=timesteps_of(arguments.timesteps) if arguments.timesteps else None,
        score=None,
        guidance=1.0,
        label=None,
        device=arguments.device,
        threads=arguments.threads,
    )
    folder = export(arguments.experiment, arguments.folder, request)
    if arguments.json:
        print(as_json({"folder": str(folder)}))
    else:
        print(
            f"{folder}: open it with DiffusionPipeline.from_pretrained({str(folder)!r}, "
            f"custom_pipeline={str(folder)!r}, trust_remote_code=True)"
        )
    return 0
