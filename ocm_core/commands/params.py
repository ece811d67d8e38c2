"""Print, write or check resolved parameters.

Of one experiment, prints every parameter with its value, after defaults, groups, overlay and
overrides; nothing is written. --write brings every file that is generated from parameters up to
date; --check exits with 1 if one is not. A run of Snakemake writes them by itself after an edit.
"""

from __future__ import annotations

import argparse

from ocm_core.commands._arguments import add_json, as_json

EXAMPLES = """
  ocm params digits                                 as the stages see them
  ocm params digits train.heads.learning_rate=1e-3  what an override would make of them
  ocm params --write                                after an edit in params/
"""


def add(parser: argparse.ArgumentParser) -> None:
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("experiment", nargs="?")
    parser.add_argument("override", nargs="*", help="key=value, as in Hydra")
    what.add_argument("--write", action="store_true", help="regenerate every generated file")
    what.add_argument(
        "--resolve", action="store_true", help="regenerate all but dvc.yaml, inside `dvc repro`"
    )
    what.add_argument("--check", action="store_true", help="say which generated file is outdated")
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    from ocm_core.params.resolved import dump
    from ocm_core.pipeline import generated_files as generate

    if arguments.write or arguments.resolve:
        write = generate.write if arguments.write else generate.write_resolved
        _print(arguments.json, [str(file) for file in write()], "brought up to date")
        return 0
    if arguments.check:
        outdated = [str(file) for file in generate.outdated(generate.generated())]
        _print(arguments.json, outdated, "out of date; run `ocm params --write`")
        return 1 if outdated else 0
    from ocm_core.params.compose import compose  # takes Hydra and torch

    experiment = compose(arguments.experiment, arguments.override)
    print(as_json(experiment.model_dump(mode="json")) if arguments.json else dump(experiment)[:-1])
    return 0


def _print(json: bool, files: list[str], what: str) -> None:
    if json:
        print(as_json(files))
    for file in () if json else files:
        print(f"{file}: {what}")
