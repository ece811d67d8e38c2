"""Make Snakemake's and DVC's records agree, without computing anything.

Snakemake remembers what it ran in `.snakemake`, DVC what it ran in `dvc.lock`. After `dvc pull`,
`checkout` or `repro` the first must follow, after a run of Snakemake the second.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from ocm_core.errors import OcmError
from ocm_core.params.resolved import ACTIVE, active_names, load
from ocm_core.pipeline.dvc_yaml import DVC_FILE, stage_name
from ocm_core.pipeline.staleness import states
from ocm_core.pipeline.table import tasks
from ocm_core.schema.experiment import Experiment


def sync(names: Sequence[str]) -> str:
    """Synchronise whole experiments (the active ones by default); says what was done."""
    experiments = [load(name) for name in names or active_names()]
    _refuse_inactive(experiments)
    stages = [
        stage_name(experiment, task) for experiment in experiments for task in tasks(experiment)
    ]
    _forget_removed()
    listed = ", ".join(experiment.name for experiment in experiments)
    if not _dvc_differs(stages):
        _touch(experiments)
        return f"{listed}: DVC is up to date; Snakemake's records now follow it"
    _refuse_stale(experiments)
    _run("dvc", "commit", "--force", *stages)
    _touch(experiments)
    return f"{listed}: every artifact is current; recorded in DVC and in Snakemake"


def _refuse_inactive(experiments: Sequence[Experiment]) -> None:
    inactive = [each.name for each in experiments if each.name not in active_names()]
    if inactive:
        raise OcmError(
            f"{', '.join(inactive)}: DVC records only the active experiments; list it in {ACTIVE} "
            "and run `ocm params --write`"
        )


def _forget_removed() -> None:
    """DVC keeps records of stages that are gone, and reads all of them each time it is called."""
    lock = DVC_FILE.with_suffix(".lock")
    if not lock.exists():
        return
    from dvc.utils.serialize import load_yaml, modify_yaml

    gone = load_yaml(lock)["stages"].keys() - load_yaml(DVC_FILE)["stages"].keys()
    if gone:
        with modify_yaml(lock) as records:
            for name in gone:
                del records["stages"][name]


def _dvc_differs(stages: Sequence[str]) -> bool:
    return bool(json.loads(_run("dvc", "status", "--json", *stages)))


def _refuse_stale(experiments: Sequence[Experiment]) -> None:
    lines = [
        f"artifacts/{experiment.name}/{task}: {found}"
        for experiment in experiments
        for task, found in states(experiment).items()
        if found != "current"
    ]
    if lines:
        pages = " ".join(f"reports/{experiment.name}.html" for experiment in experiments)
        lines.append(f"nothing was recorded; run `snakemake --cores all {pages}` or `dvc repro`")
        raise OcmError("\n".join(lines))


def _touch(experiments: Sequence[Experiment]) -> None:
    pages = [f"reports/{experiment.name}.html" for experiment in experiments]
    _run("snakemake", "--quiet", "all", "--cores", "1", "--touch", "--forceall", "--", *pages)


def _run(tool: str, *arguments: str) -> str:
    """Run a tool of this interpreter's environment."""
    command = [str(Path(sys.executable).with_name(tool)), *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise OcmError(f"`{tool} {' '.join(arguments[:2])}` failed: {' '.join(said[-3:])}")
    return done.stdout
