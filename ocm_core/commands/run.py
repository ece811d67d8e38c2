"""The command that both tools call: one stage of an experiment, or a whole phase."""

import logging
import os
import sys
from contextlib import AbstractContextManager, nullcontext
from itertools import count
from pathlib import Path
from typing import Any

from ocm_core.commands import NATURAL, POSITIVE, argument, command, device, known
from ocm_core.errors import OcmError, unknown

LOG = logging.getLogger("ocm")


@command(
    argument("stage", "or a phase: fetch, encode, train, sample, evaluate, report; or all"),
    argument("experiment", type=known),
    argument("part", "of a stage; most have the part `all`", nargs="?"),
    argument("--log FILE", type=Path),
    device,
    argument("--gpus N", "to reserve, a process each; 0: use none; default: all", type=NATURAL),
    argument("--processes N", "how many, if not one per GPU", type=POSITIVE),
    argument("--nodes N", "of SLURM that share the GPUs; default: 1", type=POSITIVE, default=1),
)
def run(stage: str, experiment: str, part: str | None, log: Path | None, **where: Any) -> None:
    """Run one stage of an experiment, a whole phase, or all phases.

    Snakemake's rules call it with a stage and a part, DVC's stages with a phase. A stage is always
    made again; of a phase, what is not up to date. Inputs must be there and up to date. `all` makes
    the page in this one process, which is fast where stages are short, and resumes like any run.

    examples:
      ocm run heads digits trained
      ocm run evaluate digits                     every stage of the phase that is not up to date
      ocm run all digits_smoke                    the page, without a process for each stage
      ocm run heads imagenet64 pretrained --gpus 8 --log heads.log
    """
    from ocm_core.pipeline.stage import ALL, PHASES, stage_names

    if stage not in (names := (*PHASES, ALL, *stage_names())):
        raise OcmError(f"stage {unknown(stage, names)}")
    device, threads = where.pop("device"), where.pop("threads")
    if where["gpus"] == 0 and device == "auto":
        device = "cpu"
    with _together(**where):
        from ocm_core.pipeline.job import run_phase, run_task

        kept = _log_to(log, os.environ.get("RANK", "0") == "0")
        whole_phase = part is None and stage in (*PHASES, ALL)
        job = f"{stage} {experiment}" if whole_phase else f"{stage} {experiment} {part or 'all'}"
        LOG.info("%s: start", job)
        try:
            if whole_phase:
                run_phase(experiment, stage, device, threads)
            else:
                run_task(experiment, stage, part or "all", device, threads)
        except KeyboardInterrupt as stop:
            message = f"{job}: interrupted; {str(stop) or 'goes on from what it has finished'}"
            LOG.error(message)
            raise KeyboardInterrupt(message) from None
        except Exception as error:
            LOG.exception("%s: failed", job)
            if not log:
                raise
            kind = "" if isinstance(error, OcmError) else f"{type(error).__name__}: "
            raise OcmError(f"{job}: {kind}{error} (log: {log})") from None
        if stage == ALL:
            from ocm_core.sync import touch

            touch([experiment])
            print(f"done; open reports/{experiment}.html", file=sys.stderr)
        LOG.info("%s: done", job)
        if kept:
            kept.unlink()


def _together(gpus: int | None, processes: int | None, nodes: int) -> AbstractContextManager[None]:
    """Reserve GPUs, and where there are several processes become `torchrun`, or join it."""
    if (rank := os.environ.get("LOCAL_RANK")) is not None:
        from ocm_core.distributed import joined

        return joined(int(rank))
    from ocm_core import launch

    if nodes > 1:
        launch.on_nodes(nodes, gpus or 0, sys.argv[1:])
    if gpus is not None:
        os.environ[launch.VISIBLE] = launch.reserve(gpus)
    if (processes := processes or max(1, gpus or 0)) > 1:
        launch.on_this_node(processes, sys.argv[1:])
    return nullcontext()


def _log_to(file: Path | None, first: bool) -> Path | None:
    """Log everything to the file, and to stderr all but errors, which `main` prints.

    Of several processes the first one writes, and any that fails. Returns a second name of the log,
    which stays: Snakemake deletes `file` before the next try.
    """
    logging.raiseExceptions = False  # a full disk is named once, by `main`
    LOG.setLevel(logging.INFO if first else logging.ERROR)
    stream = logging.StreamHandler()
    stream.setLevel(logging.WARNING if sys.stderr.isatty() else logging.INFO)
    stream.addFilter(lambda record: record.levelno < logging.ERROR)
    handlers: list[logging.Handler] = [stream]
    if file:
        file.parent.mkdir(parents=True, exist_ok=True)
        handlers.append(logging.FileHandler(file, mode="w" if first else "a"))
    for handler in handlers:
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
        LOG.addHandler(handler)
    if not file or not first:
        return None
    names = (file.with_suffix(f".try{number}{file.suffix}") for number in count(1))
    kept = next(name for name in names if not name.exists())
    try:
        kept.hardlink_to(file)
    except OSError:  # a file system without links: only the last try's log is kept
        return None
    return kept
