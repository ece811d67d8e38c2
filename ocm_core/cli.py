"""Better covariances for pretrained diffusion models: the pipeline's day-to-day commands.

The experiments themselves are run by `snakemake` or `dvc repro`.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import ocm_core
from ocm_core.commands import (
    compare,
    cost,
    doctor,
    fetch,
    index,
    networks,
    params,
    run,
    sample,
    status,
    sync,
    verify,
)
from ocm_core.errors import OcmError

EXIT_CODES = """exit codes:
  0  fine
  1  something is wrong with what was asked; stderr, or the output itself, says what
  2  a mistake in the command line"""


class Command(Protocol):
    """A file of `ocm_core/commands/`; the docstring is its help."""

    EXAMPLES: str
    __doc__: str | None
    __name__: str

    def add(self, parser: argparse.ArgumentParser) -> None: ...
    def run(self, arguments: argparse.Namespace) -> int: ...


COMMANDS: tuple[Command, ...] = (
    *(doctor, cost, params, networks, fetch),  # before a run
    *(run, status, verify, sync),  # during it
    *(sample, compare, index),  # after it
)


def main(argv: Sequence[str] | None = None) -> int:
    arguments = _parser().parse_args(argv)
    command: Command = arguments.command
    try:
        _check_place()
        code = command.run(arguments)
        sys.stdout.flush()
        return code
    except BrokenPipeError:  # the reader has seen enough, as in `ocm params digits | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OcmError as error:
        for line in str(error).splitlines():
            print(f"ocm: {line}", file=sys.stderr)
        return 1


def _check_place() -> None:
    """Refuse to work in one checkout with the code of another."""
    home = Path(ocm_core.__file__).resolve().parents[1]
    if home != Path.cwd().resolve():
        raise OcmError(
            f"run this in {home}, where ocm_core comes from, and not in {Path.cwd()}; "
            "another checkout needs its own `make env`"
        )


def _parser() -> argparse.ArgumentParser:
    plain = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        prog="ocm", description=__doc__, epilog=EXIT_CODES, formatter_class=plain
    )
    commands = parser.add_subparsers(required=True, metavar="command")
    for command in COMMANDS:
        described = command.__doc__ or ""
        first = described.partition("\n")[0].removesuffix(".")
        own = commands.add_parser(
            command.__name__.rpartition(".")[2],
            help=first[0].lower() + first[1:],
            description=described,
            epilog=f"examples:\n{command.EXAMPLES.strip(chr(10))}\n\n{EXIT_CODES}",
            formatter_class=plain,
        )
        command.add(own)
        own.set_defaults(command=command)
    return parser


if __name__ == "__main__":
    sys.exit(main())
