"""Run one stage of an experiment: what every rule calls.

Snakemake and DVC call this; by hand it is useful to see one stage fail. Its inputs must be there
and current, and its artifact is written as any other.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
from pathlib import Path

from ocm_core.commands._arguments import add_device, at_least_one, at_least_zero
from ocm_core.errors import OcmError

EXAMPLES = """
  ocm run heads digits learned
  ocm run heads imagenet64 published --gpus 8 --log heads.log
"""


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("stage")
    parser.add_argument("experiment")
    parser.add_argument("part", nargs="?", default="all")
    parser.add_argument("--log", type=Path, metavar="FILE")
    add_device(parser)
    parser.add_argument(
        "--gpus",
        type=at_least_zero,
        metavar="N",
        help="how many to reserve, one process each; 0: none is used; else those that there are",
    )
    parser.add_argument(
        "--processes", type=at_least_one, metavar="N", help="how many, if not one per GPU"
    )


def run(arguments: argparse.Namespace) -> int:
    _take_part(arguments)
    from ocm_core.pipeline.run import run

    first = os.environ.get("RANK", "0") == "0"
    log = _log_to(arguments.log if first else None)
    stage, experiment, part = arguments.stage, arguments.experiment, arguments.part
    job = f"{stage} {experiment} {part}"
    log.info("%s: start", job)
    try:
        run(experiment, stage, part, arguments.device, arguments.threads)
    except Exception as error:
        log.exception("%s: failed", job)
        if not arguments.log:
            raise
        reason = str(error) if isinstance(error, OcmError) else f"{type(error).__name__}: {error}"
        raise OcmError(f"{job}: {reason} (log: {arguments.log})") from None
    log.info("%s: done", job)
    return 0


def _take_part(arguments: argparse.Namespace) -> None:
    """Reserve GPUs, and where there are several processes become `torchrun`, or join it."""
    if arguments.gpus == 0 and arguments.device == "auto":
        arguments.device = "cpu"
    if (rank := os.environ.get("LOCAL_RANK")) is not None:
        from ocm_core.distributed import join

        return join(int(rank))
    if arguments.gpus is not None:
        from ocm_core.pipeline.gpus import VISIBLE, reserve

        os.environ[VISIBLE] = reserve(arguments.gpus)
    processes = arguments.processes or max(1, arguments.gpus or 0)
    if processes > 1:
        together = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
        command = [sys.executable, *together, "-m", "ocm_core.cli", *sys.argv[1:]]
        os.execv(command[0], command)


def _log_to(file: Path | None) -> logging.Logger:
    """All to the file; to stderr all but errors, which `main` prints, unless a bar is there."""
    log = logging.getLogger("ocm")
    log.setLevel(logging.INFO)
    if file:
        file.parent.mkdir(parents=True, exist_ok=True)
        _add(log, logging.FileHandler(file, mode="w"))
    if not sys.stderr.isatty():
        stream = logging.StreamHandler()
        stream.addFilter(lambda record: record.levelno < logging.ERROR)
        _add(log, stream)
    log.addHandler(logging.NullHandler())
    return log


def _add(log: logging.Logger, handler: logging.Handler) -> None:
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    log.addHandler(handler)
