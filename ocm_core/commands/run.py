"""Run one stage of an experiment, or a whole phase.

Snakemake's rules call it with a stage and a part, DVC's stages with a phase. A stage is always made
again; of a phase, what is not up to date. Inputs must be there and up to date.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
from contextlib import AbstractContextManager, nullcontext
from itertools import count
from pathlib import Path

from ocm_core.commands._arguments import add_device, at_least_one, at_least_zero
from ocm_core.errors import OcmError

EXAMPLES = """
  ocm run heads digits trained
  ocm run evaluate digits                     every stage of the phase that is not up to date
  ocm run heads imagenet64 pretrained --gpus 8 --log heads.log
"""


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("stage", help="or a phase: fetch, encode, train, sample, evaluate, report")
    parser.add_argument("experiment")
    parser.add_argument("part", nargs="?", help="of a stage; most have the part `all`")
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
    parser.add_argument(
        "--nodes",
        type=at_least_one,
        default=1,
        metavar="N",
        help="of a job of SLURM: how many share the GPUs (default 1)",
    )


def run(arguments: argparse.Namespace) -> int:
    with _together(arguments):
        return _run(arguments)


def _run(arguments: argparse.Namespace) -> int:
    from ocm_core.pipeline.job import run_phase, run_task
    from ocm_core.pipeline.stage import PHASES

    log, kept = _log_to(arguments.log, os.environ.get("RANK", "0") == "0")
    stage, experiment, part = arguments.stage, arguments.experiment, arguments.part
    whole_phase = part is None and stage in PHASES
    job = f"{stage} {experiment}" if whole_phase else f"{stage} {experiment} {part or 'all'}"
    log.info("%s: start", job)
    try:
        if whole_phase:
            run_phase(experiment, stage, arguments.device, arguments.threads)
        else:
            run_task(experiment, stage, part or "all", arguments.device, arguments.threads)
    except KeyboardInterrupt as stop:
        message = f"{job}: interrupted; {str(stop) or 'goes on from what it has finished'}"
        log.error(message)
        raise KeyboardInterrupt(message) from None
    except Exception as error:
        log.exception("%s: failed", job)
        if not arguments.log:
            raise
        reason = str(error) if isinstance(error, OcmError) else f"{type(error).__name__}: {error}"
        raise OcmError(f"{job}: {reason} (log: {arguments.log})") from None
    log.info("%s: done", job)
    if kept:
        kept.unlink()
    return 0


def _together(arguments: argparse.Namespace) -> AbstractContextManager[None]:
    """Reserve GPUs, and where there are several processes become `torchrun`, or join it."""
    if arguments.gpus == 0 and arguments.device == "auto":
        arguments.device = "cpu"
    if (rank := os.environ.get("LOCAL_RANK")) is not None:
        from ocm_core.distributed import joined

        return joined(int(rank))
    from ocm_core.pipeline import launch

    if arguments.nodes > 1:
        launch.on_nodes(arguments.nodes, arguments.gpus or 0, sys.argv[1:])
    if arguments.gpus is not None:
        os.environ[launch.VISIBLE] = launch.reserve(arguments.gpus)
    processes = arguments.processes or max(1, arguments.gpus or 0)
    if processes > 1:
        launch.on_this_node(processes, sys.argv[1:])
    return nullcontext()


def _log_to(file: Path | None, first: bool) -> tuple[logging.Logger, Path | None]:
    """Log everything to the file, and to stderr all but errors, which `main` prints.

    Of several processes the first one writes, and any that fails. Also returns the log's second
    name, if it has one.
    """
    log, kept = logging.getLogger("ocm"), None
    log.setLevel(logging.INFO if first else logging.ERROR)
    if file:
        file.parent.mkdir(parents=True, exist_ok=True)
        _add(log, logging.FileHandler(file, mode="w" if first else "a"))
        kept = _second_name(file) if first else None
    stream = logging.StreamHandler()
    stream.setLevel(logging.WARNING if sys.stderr.isatty() else logging.INFO)
    stream.addFilter(lambda record: record.levelno < logging.ERROR)
    _add(log, stream)
    return log, kept


def _second_name(file: Path) -> Path | None:
    """Link the log under a name that stays: Snakemake deletes `file` before the next try."""
    names = (file.with_suffix(f".try{number}{file.suffix}") for number in count(1))
    kept = next(name for name in names if not name.exists())
    try:
        kept.hardlink_to(file)
    except OSError:  # a file system without links: only the last try's log is kept
        return None
    return kept


def _add(log: logging.Logger, handler: logging.Handler) -> None:
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    log.addHandler(handler)
