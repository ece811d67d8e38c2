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

from ocm_core.commands import (
    compare,
    cost,
    doctor,
    export,
    fetch,
    index,
    init,
    keep,
    networks,
    params,
    rerun,
    run,
    sample,
    set_,
    status,
    sync,
    verify,
)
from ocm_core.errors import OcmError
from ocm_core.io.disk import room_for
from ocm_core.project import PACKAGE, is_checkout

EXIT_CODES = """exit codes:
  0    fine
  1    something is wrong with what was asked; stderr, or the output itself, says what
  2    a mistake in the command line
  130  interrupted by Ctrl-C"""
INTERRUPTED = 130


class Command(Protocol):
    """A file of `ocm_core/commands/`; the docstring is its help."""

    EXAMPLES: str
    __doc__: str | None
    __name__: str

    def add(self, parser: argparse.ArgumentParser) -> None: ...
    def run(self, arguments: argparse.Namespace) -> int: ...


COMMANDS: tuple[Command, ...] = (
    *(init, doctor, cost, params, set_, networks, fetch),  # before a run
    *(rerun, run, status, verify, sync),  # during it
    *(sample, export, compare, keep, index),  # after it
)


def name_of(command: Command) -> str:
    """As it is typed: a file whose name Python uses otherwise ends in an underscore."""
    return command.__name__.rpartition(".")[2].rstrip("_")


def main(argv: Sequence[str] | None = None) -> int:
    arguments = _parser().parse_args(argv)
    command: Command = arguments.command
    try:
        _check_place()
        with room_for(Path()):
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
    except PermissionError as error:
        print(f"ocm: {error.filename}: {error.strerror}", file=sys.stderr)
        return 1
    except KeyboardInterrupt as stop:
        print(f"ocm: {str(stop) or 'interrupted'}", file=sys.stderr)
        return INTERRUPTED


def _check_place() -> None:
    """Refuse to work in one checkout with the code of another."""
    home = PACKAGE.parent
    if is_checkout() and home != Path.cwd().resolve():
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
            name_of(command),
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
