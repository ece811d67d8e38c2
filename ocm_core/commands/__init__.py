"""The commands of `ocm`, and the arguments that they share.

`@command` makes a function a command: its docstring is the help, its arguments are what was typed.
A shell waits for the start, so what a command works with is imported when it runs.
"""

import os
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Callable
from functools import partial
from json import dumps
from pathlib import Path
from typing import Any

from ocm_core.errors import unknown
from ocm_core.project import split_name

DEVICES = ("auto", "cpu", "cuda", "mps")
Argument = Callable[[ArgumentParser], object]  # adds itself to the parser
Run = Callable[..., int | None]  # returns the exit code; None is 0
COMMANDS: dict[str, tuple[Run, tuple[Argument, ...]]] = {}


def command(*arguments: Argument) -> Callable[[Run], Run]:
    """Register a function as the command of its name."""

    def register(run: Run) -> Run:
        COMMANDS[run.__name__] = run, arguments
        return run

    return register


def argument(name: str, about: str = "", **options: Any) -> Argument:
    """Declare an argument, `--log FILE`, with further options of argparse."""
    name, *metavar = name.split()
    options |= {"help": about, "metavar": metavar[0]} if metavar else {"help": about}
    return lambda parser: parser.add_argument(name, **options)


def device(parser: ArgumentParser) -> None:
    """Add --device and --threads; the environment's choice is checked like one that was typed."""
    chosen, threads = os.environ.get("OCM_DEVICE", "auto"), os.environ.get("OCM_THREADS", "1")
    names = f"one of {', '.join(DEVICES)}; or OCM_DEVICE"
    argument("--device NAME", names, type=_device, default=chosen)(parser)
    argument("--threads N", "of the CPU; or OCM_THREADS", type=POSITIVE, default=threads)(parser)


def _device(text: str) -> str:
    if text not in DEVICES:
        raise ArgumentTypeError(unknown(text, DEVICES))
    return text


def _whole(least: int, text: str) -> int:
    if not text.isdigit() or int(text) < least:
        raise ArgumentTypeError(f"{text!r}: expected a whole number, {least} or more")
    return int(text)


def known(name: str) -> str:
    """Return the name of an experiment; refuse one that has no file."""
    split_name(name)
    return name


POSITIVE, NATURAL = partial(_whole, 1), partial(_whole, 0)
ACTIVE = argument("experiment", "the active ones if none is given", nargs="*", type=known)
MODEL = argument("--model FOLDER", "as save_pretrained wrote it", type=Path)
JSON = argument("--json", "for scripts: JSON on stdout", action="store_true")


def show(json: bool, tree: object, text: str) -> None:
    """Print a result, for scripts or for people."""
    print(dumps(tree, indent=2) if json else text)
