"""Print every parameter of an experiment, after defaults, files, presets and overrides.

A name may end in presets, which are files of params/preset/: digits_seed2, cifar10_ls_smoke.
"""

from __future__ import annotations

import argparse

from ocm_core.commands._arguments import add_json, as_json

EXAMPLES = """
  ocm params digits                                 as the stages see them
  ocm params digits_smoke                           in small: what the preset makes of them
  ocm params digits train.heads.learning_rate=1e-3  what an override would make of them
"""


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("experiment", help="its name, which may end in presets")
    parser.add_argument("override", nargs="*", help="key=value, as in Hydra; replaces the value")
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the parameters as YAML or JSON."""
    from ocm_core.params.compose import compose, dump  # imports Hydra and torch

    experiment = compose(arguments.experiment, arguments.override)
    print(as_json(experiment.model_dump(mode="json")) if arguments.json else dump(experiment)[:-1])
    return 0
