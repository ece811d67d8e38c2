"""Make the records of Snakemake (`.snakemake`) and of DVC (`dvc.lock`) agree.

After a run of Snakemake the second follows; after `dvc pull`, `checkout` or `repro` the first.
"""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import yaml

from ocm_core.errors import OcmError
from ocm_core.io.atomic import write_text
from ocm_core.params.compose import ACTIVE, active_names
from ocm_core.pipeline.artifacts import ROOT, checked_folder, folder_of, manifest_of, text_digest
from ocm_core.pipeline.graph import graph_of
from ocm_core.pipeline.stage import PHASES
from ocm_core.pipeline.state import MISSING, UP_TO_DATE, code, parameters, states


def write_plan(name: str) -> Path:
    """Write a digest of each phase's parameters and code: what DVC compares."""
    graph = graph_of(name)
    plan = {}
    for phase in PHASES:
        tasks = graph.of_phase(phase)
        plan[phase] = text_digest({str(t): [parameters(graph, t), code(graph, t)] for t in tasks})
    file = ROOT / name / "plan.yaml"
    write_text(file, yaml.safe_dump(plan, sort_keys=False))
    return file


def sync(names: Sequence[str]) -> str:
    """Record whole experiments, the active ones by default, in DVC and in Snakemake."""
    chosen = names or active_names()
    if inactive := [name for name in chosen if name not in active_names()]:
        remedy = f"DVC records only active experiments; list them in {ACTIVE}"
        raise OcmError(f"{', '.join(inactive)}: {remedy}")
    if pulled := [name for name in chosen if Path("reports", name, "results.csv").exists()]:
        _call("ocm", "report", *pulled)  # neither DVC nor Git has the pages
    _commit(chosen)
    touch(chosen)
    return f"{', '.join(chosen)}: up to date; recorded in DVC and in Snakemake"


def touch(names: Sequence[str]) -> None:
    """Let Snakemake take what is there for its own work."""
    pages = [f"reports/{name}.html" for name in names]
    quiet = ["--no-hooks", "--quiet", "all", "--cores", "1", "--touch", "--forceall"]
    _call("snakemake", *quiet, "--", *pages)


def record() -> str:
    """Tell DVC of finished active experiments after a Snakemake run; a failure is only reported."""
    if not Path(".dvc").is_dir():
        return "DVC: not set up in this folder, so nothing is recorded"
    all_states = {name: set(states(graph_of(name)).values()) for name in active_names()}
    finished = [name for name, found in all_states.items() if found == {UP_TO_DATE}]
    try:
        _commit(finished)
    except OcmError as error:
        return f"{error}\nDVC's record is older than this run; `ocm sync` brings it up to date"
    return f"DVC: {', '.join(finished) or 'nothing'} recorded"


def _commit(names: Sequence[str]) -> None:
    """Record experiments that are whole and up to date; others are refused."""
    for name in names:
        found = states(graph_of(name))
        stale = {task: state for task, state in found.items() if state != UP_TO_DATE}
        if lines := [f"{folder_of(name, task)}: {state}" for task, state in stale.items()]:
            lost = [f"{manifest_of(name, task)} " for task in stale if stale[task] == MISSING]
            again = f"`snakemake --cores all {''.join(lost)}reports/{name}.html`"
            raise OcmError("\n".join([*lines, f"nothing was recorded; run {again}"]))
        for task in found:
            checked_folder(name, task)
    for name in names:
        write_plan(name)
        for phase in PHASES:  # DVC expects the folder of every phase, even of one without tasks
            (ROOT / name / phase).mkdir(exist_ok=True)
    if names:
        _call("dvc", "commit", "--force", *(f"{p}@{n}" for n in names for p in ("plan", *PHASES)))


def _call(program: str, *arguments: str) -> None:
    command = [str(Path(sys.executable).with_name(program)), *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines()
        raise OcmError(f"`{program} {arguments[0]}` failed: {' '.join(lines[-3:])}")
