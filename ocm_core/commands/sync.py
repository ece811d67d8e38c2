"""Make Snakemake's and DVC's records agree, without computing anything.

After `dvc pull`, `checkout` or `repro` Snakemake follows DVC; after a run of Snakemake DVC follows
it, which a run that succeeds does by itself. Exits with 1, and records nothing, if an artifact is
stale, missing or damaged.
"""

from __future__ import annotations

import argparse

EXAMPLES = """
  ocm sync                           the active experiments
  ocm sync digits                    one of them
"""


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("experiment", nargs="*", help="active ones; all of them if none is given")


def run(arguments: argparse.Namespace) -> int:
    from ocm_core.pipeline.sync import sync

    print(sync(arguments.experiment))
    return 0
