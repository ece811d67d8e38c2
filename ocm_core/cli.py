"""The command `ocm`: thin handlers over `ocm_core.pipeline`, one per subcommand."""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import ocm_core
from ocm_core.errors import OcmError

DEVICES = ("auto", "cpu", "cuda", "mps")
_EXAMPLES = {
    "compare": """examples:
  ocm compare                        the working tree against the last commit
  ocm compare v0.1.0 main            two commits, tags or branches
  ocm compare HEAD~3 --page diff.html""",
    "doctor": """examples:
  ocm doctor                         this machine and this environment
  ocm doctor imagenet256             and what that experiment still needs
  ocm doctor digits --json""",
    "bench": """examples:
  ocm bench                          the whole suite
  ocm bench recall_5k all_heads      some of it; the others' numbers are kept""",
    "index": """example:
  ocm index                          after a run, a pull or a checkout""",
}


def main(argv: Sequence[str] | None = None) -> int:
    arguments = _parser().parse_args(argv)
    try:
        _check_place()
        code: int = arguments.handle(arguments)
    except OcmError as error:
        for line in str(error).splitlines():
            print(f"ocm: {line}", file=sys.stderr)
        return 1
    return code


def _check_place() -> None:
    """Refuse to work on one checkout with the code of another."""
    home = Path(ocm_core.__file__).resolve().parents[1]
    if home != Path.cwd().resolve():
        raise OcmError(
            f"run this in {home}, where ocm_core comes from, and not in {Path.cwd()}; "
            "another checkout needs its own `make env`"
        )


def _params(arguments: argparse.Namespace) -> int:
    from ocm_core.params.compose import compose
    from ocm_core.params.resolved import dump
    from ocm_core.pipeline import generate

    if arguments.write:
        for file in generate.write():
            print(f"{file}: brought up to date")
        return 0
    if arguments.check:
        outdated = generate.outdated(generate.generated())
        for file in outdated:
            print(f"{file}: out of date; run `ocm params --write`")
        return 1 if outdated else 0
    if not arguments.experiment:
        raise OcmError("params: expected an experiment, --write or --check")
    print(dump(compose(arguments.experiment, arguments.override)), end="")
    return 0


def _run(arguments: argparse.Namespace) -> int:
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
    if (rank := os.environ.get("LOCAL_RANK")) is not None:
        from ocm_core.processes import join

        return join(int(rank))
    if arguments.gpus:
        from ocm_core.pipeline.gpus import VISIBLE, reserve

        os.environ[VISIBLE] = reserve(arguments.gpus)
    processes = arguments.processes or max(1, arguments.gpus)
    if processes > 1:
        together = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
        command = [sys.executable, *together, "-m", "ocm_core.cli", *sys.argv[1:]]
        os.execv(command[0], command)


def _verify(arguments: argparse.Namespace) -> int:
    from ocm_core.params.resolved import active_names, load
    from ocm_core.pipeline.artifacts import differences
    from ocm_core.pipeline.table import tasks

    wrong = 0
    for name in [arguments.experiment] if arguments.experiment else active_names():
        for task in tasks(load(name)):
            try:
                found = list(differences(name, task))
            except OcmError as error:
                found = [str(error)]
            wrong += len(found)
            print("\n".join(found), end="\n" if found else "")
    print("every file is as its manifest says" if not wrong else f"{wrong} differences")
    return 1 if wrong else 0


def _status(arguments: argparse.Namespace) -> int:
    from ocm_core.params.resolved import active_names, load
    from ocm_core.pipeline.state import states

    for name in arguments.experiment or active_names():
        for task, found in states(load(name)).items():
            print(f"{name} {task}: {found}")
    return 0


def _sync(arguments: argparse.Namespace) -> int:
    from ocm_core.pipeline.sync import sync

    print(sync(arguments.experiment))
    return 0


def _networks(arguments: argparse.Namespace) -> int:
    from ocm_core.checkpoints.counts import counts, table
    from ocm_core.checkpoints.registry import CHECKPOINTS

    rows = [counts(checkpoint) for checkpoint in CHECKPOINTS.values()]
    as_json = json.dumps([row._asdict() for row in rows], indent=2)
    print(as_json if arguments.json else table(rows))
    return 0


def _fetch(arguments: argparse.Namespace) -> int:
    from ocm_core.checkpoints.bar import byte_bar
    from ocm_core.checkpoints.convert import WEIGHTS, describe, fetch
    from ocm_core.checkpoints.lock import Lock
    from ocm_core.checkpoints.registry import FOLDER, checkpoint_named

    checkpoint = checkpoint_named(arguments.name)
    folder = FOLDER / checkpoint.name
    with byte_bar(checkpoint.name) as progress:
        wanted = {"file": arguments.file, "url": arguments.url}
        provenance = fetch(checkpoint, folder, Lock(), **wanted, progress=progress)
    print(f"{folder / WEIGHTS}: {describe(provenance)}")
    return 0


def _compare(arguments: argparse.Namespace) -> int:
    from ocm_core.compare.changes import compare
    from ocm_core.compare.revisions import Revision, WorkingTree, commit
    from ocm_core.compare.text import as_json, terminal

    here = Path.cwd()
    after: Revision = commit(here, arguments.after) if arguments.after else WorkingTree(here)
    comparison = compare(commit(here, arguments.before), after)
    if arguments.page:
        from ocm_core.compare.page import page
        from ocm_core.report.page import render

        arguments.page.parent.mkdir(parents=True, exist_ok=True)
        arguments.page.write_text(render(page(comparison, arguments.all)), encoding="utf-8")
    print(as_json(comparison) if arguments.json else terminal(comparison, arguments.all))
    return 0


def _doctor(arguments: argparse.Namespace) -> int:
    from ocm_core.doctor.findings import as_json, examine, terminal
    from ocm_core.params.resolved import load

    found = examine(load(arguments.experiment) if arguments.experiment else None)
    print(as_json(found) if arguments.json else terminal(found))
    return 1 if found.problems else 0


def _index(arguments: argparse.Namespace) -> int:
    from ocm_core.overview.page import FILE, entries, render

    found = entries(Path.cwd())
    FILE.write_text(render(found), encoding="utf-8")
    print(f"{FILE}: {', '.join(entry.name for entry in found) or 'no numbers yet'}")
    return 0


def _bench(arguments: argparse.Namespace) -> int:
    from ocm_core.bench import record
    from ocm_core.bench.page import page
    from ocm_core.bench.run import measured, row, table
    from ocm_core.bench.suite import chosen, suite
    from ocm_core.report.page import render

    known, fresh = suite(), {}
    for benchmark, measurement in measured(chosen(arguments.name)):
        fresh[benchmark.name] = measurement
        print("  ".join(row(benchmark, measurement)), file=sys.stderr, flush=True)
    merged = record.read() | fresh
    found = {name: merged[name] for name in known if name in merged}
    record.write(found)
    record.PAGE.write_text(render(page(known, found)), encoding="utf-8")
    print(record.as_json(fresh) if arguments.json else table(known, fresh))
    return 0 if all(measurement.holds for measurement in fresh.values()) else 1


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


def _device(text: str) -> str:
    if text not in DEVICES:
        raise argparse.ArgumentTypeError(f"{text!r} is none of {', '.join(DEVICES)}")
    return text


def _threads(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of threads; expected 1 or more")
    return int(text)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="ocm", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="command")

    params = commands.add_parser("params", help="print, write or check resolved parameters")
    params.add_argument("experiment", nargs="?")
    params.add_argument("override", nargs="*", help="key=value, as in Hydra")
    params.add_argument("--write", action="store_true", help="regenerate every generated file")
    params.add_argument("--check", action="store_true", help="say which generated file is outdated")
    params.set_defaults(handle=_params)

    run = commands.add_parser("run", help="run one stage (what every rule calls)")
    run.add_argument("stage")
    run.add_argument("experiment")
    run.add_argument("part", nargs="?", default="all")
    run.add_argument("--log", type=Path)
    device, threads = os.environ.get("OCM_DEVICE", "auto"), os.environ.get("OCM_THREADS", "1")
    run.add_argument("--device", type=_device, default=device, help="or OCM_DEVICE")
    run.add_argument("--threads", type=_threads, default=threads, help="or OCM_THREADS")
    run.add_argument("--gpus", type=int, default=0, help="how many to reserve; one process each")
    run.add_argument("--processes", type=int, help="how many, if not one per GPU")
    run.set_defaults(handle=_run)

    verify = commands.add_parser("verify", help="recompute every sha256 and name what differs")
    verify.add_argument("experiment", nargs="?")
    verify.set_defaults(handle=_verify)

    status = commands.add_parser("status", help="say which artifacts are current, stale or missing")
    status.add_argument("experiment", nargs="*")
    status.set_defaults(handle=_status)

    sync = commands.add_parser("sync", help="make Snakemake's and DVC's records agree")
    sync.add_argument("experiment", nargs="*")
    sync.set_defaults(handle=_sync)

    networks = commands.add_parser("networks", help="count the published networks' parameters")
    networks.add_argument("--json", action="store_true")
    networks.set_defaults(handle=_networks)

    fetch = commands.add_parser("fetch", help="get, check and convert a published checkpoint")
    fetch.add_argument("name")
    fetch.add_argument("--url", help="another place to download the same file from")
    fetch.add_argument("--file", help="which of its published files, where there are several")
    fetch.set_defaults(handle=_fetch)

    compare = commands.add_parser(
        "compare",
        help="say which numbers and parameters changed between commits, and if beyond noise",
        description="Which numbers and parameters differ between two commits, or between a commit "
        "and the working tree; the spread over seeds tells changes from noise.",
        epilog=_EXAMPLES["compare"],
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    compare.add_argument("before", nargs="?", default="HEAD", help="a commit; HEAD if not given")
    compare.add_argument("after", nargs="?", help="a commit; the working tree if not given")
    compare.add_argument("--all", action="store_true", help="unchanged and within noise too")
    compare.add_argument("--json", action="store_true")
    compare.add_argument("--page", type=Path, metavar="FILE", help="write it as a page, too")
    compare.set_defaults(handle=_compare)

    doctor = commands.add_parser(
        "doctor",
        help="say what is installed, and what an experiment needs, before it starts",
        description="Versions against their pins, devices, memory and disk; of an experiment: its "
        "tasks, the published files it needs, and the disk and time it will take. Exits with 1 if "
        "something that is needed is missing.",
        epilog=_EXAMPLES["doctor"],
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    doctor.add_argument("experiment", nargs="?")
    doctor.add_argument("--json", action="store_true")
    doctor.set_defaults(handle=_doctor)

    bench = commands.add_parser(
        "bench",
        help="measure speed and memory against targets, side by side with the published way",
        description="Run the benchmarks, or those that are named; write reports/benchmarks.json "
        "and reports/benchmarks.html. Exits with 1 if a target does not hold.",
        epilog=_EXAMPLES["bench"],
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    bench.add_argument("name", nargs="*")
    bench.add_argument("--json", action="store_true")
    bench.set_defaults(handle=_bench)

    index = commands.add_parser(
        "index",
        help="write reports/index.html: all experiments and their best methods at a glance",
        description="Write reports/index.html from the metrics of all experiments: their best "
        "methods by number of steps, with links to the pages that were made.",
        epilog=_EXAMPLES["index"],
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    index.set_defaults(handle=_index)
    return parser


if __name__ == "__main__":
    sys.exit(main())
