"""Arguments that commands share."""

from __future__ import annotations

import argparse
import json
import os

from ocm_core.errors import unknown

DEVICES = ("auto", "cpu", "cuda", "mps")


def add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="for scripts: JSON on stdout")


def add_device(parser: argparse.ArgumentParser) -> None:
    """The environment's choice is checked like one that was typed."""
    device, threads = os.environ.get("OCM_DEVICE", "auto"), os.environ.get("OCM_THREADS", "1")
    parser.add_argument(
        "--device",
        type=_device,
        default=device,
        metavar="NAME",
        help=f"one of {', '.join(DEVICES)}; or OCM_DEVICE",
    )
    parser.add_argument(
        "--threads",
        type=at_least_one,
        default=threads,
        metavar="N",
        help="of the CPU; or OCM_THREADS",
    )


def as_json(value: object) -> str:
    return json.dumps(value, indent=2)


def at_least_one(text: str) -> int:
    return _whole(text, least=1)


def at_least_zero(text: str) -> int:
    return _whole(text, least=0)


def _whole(text: str, least: int) -> int:
    if not text.isdigit() or int(text) < least:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a whole number, {least} or more")
    return int(text)


def _device(text: str) -> str:
    if text not in DEVICES:
        raise argparse.ArgumentTypeError(unknown(text, DEVICES))
    return text
