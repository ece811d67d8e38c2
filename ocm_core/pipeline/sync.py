"""Make Snakemake's and DVC's records agree, without computing anything.

Snakemake remembers what it ran in `.snakemake`, DVC what it ran in `dvc.lock`. After a run of
Snakemake the second follows (`record`, at the end of each run); after `dvc pull`, `checkout` or
`repro` the first. DVC is asked in this process, once for all stages: each call of the command
reads `dvc.yaml` and `dvc.lock` anew, which takes longer than all else.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from ocm_core.errors import OcmError
from ocm_core.params.resolved import ACTIVE, active_names, load
from ocm_core.pipeline.dvc_yaml import COMPOSING, DVC_FILE, stage_name
from ocm_core.pipeline.generated_files import write_if_edited
from ocm_core.pipeline.manifests import differences, manifest_of
from ocm_core.pipeline.staleness import states
from ocm_core.pipeline.table import Task, tasks
from ocm_core.schema.experiment import Experiment


def sync(names: Sequence[str]) -> str:
    """Synchronise whole experiments (the active ones by default); says what was done."""
    write_if_edited()
    experiments = [load(name) for name in names or active_names()]
    _refuse_inactive(experiments)
    recorded = _record(experiments)
    _touch(experiments)
    listed = ", ".join(experiment.name for experiment in experiments)
    if recorded:
        return f"{listed}: every artifact is current; recorded in DVC and in Snakemake"
    return f"{listed}: DVC is up to date; Snakemake's records now follow it"


def record() -> str:
    """Tell DVC of the active experiments that are finished; says of which.

    A run has succeeded when this is called: what hinders the record is said and does not undo that.
    """
    if not Path(".dvc").is_dir():
        return "DVC: not set up in this folder, so nothing is recorded"
    try:
        experiments = [load(name) for name in active_names()]
        finished = [each for each in experiments if set(states(each).values()) == {"current"}]
        recorded = finished and _record(finished)
    except OcmError as error:
        return f"{error}\nDVC's record is older than this run; `ocm sync` brings it up to date"
    names = ", ".join(experiment.name for experiment in finished)
    return f"DVC: {names} recorded" if recorded else "DVC: nothing to record"


def _refuse_inactive(experiments: Sequence[Experiment]) -> None:
    inactive = [each.name for each in experiments if each.name not in active_names()]
    if inactive:
        raise OcmError(
            f"{', '.join(inactive)}: DVC records only the active experiments; list it in {ACTIVE} "
            "and run `ocm params --write`"
        )


def _record(experiments: Sequence[Experiment]) -> bool:
    """Let DVC's record follow what is whole and current; whether anything had to be recorded."""
    from dvc.exceptions import DvcException
    from dvc.repo import Repo, lock_repo

    try:
        with Repo() as repo, lock_repo(repo):
            return _commit(repo, experiments)
    except DvcException as error:
        raise OcmError(f"DVC: {error}; nothing was recorded") from None


def _commit(repo: Any, experiments: Sequence[Experiment]) -> bool:
    """What `dvc commit --force` does, for the stages that differ."""
    of_name = {
        stage_name(experiment, task): (experiment, task)
        for experiment in experiments
        for task in tasks(experiment)
    }
    stages = [stage for stage in repo.index.stages if stage.name in {COMPOSING, *of_name}]
    if unlisted := sorted(of_name.keys() - {stage.name for stage in stages}):
        raise OcmError(f"{DVC_FILE}: has no stage {unlisted[0]}; run `ocm params --write`")
    differing = [stage for stage in stages if stage.status()]
    if not differing:
        return _forget_removed(repo)
    _refuse_stale(experiments)
    _refuse_damaged(of_name[stage.name] for stage in differing if stage.name != COMPOSING)
    for stage in differing:
        stage.save()
        stage.commit(relink=False)
    differing[0].dvcfile.dump_stages(differing, update_pipeline=False)
    _forget_removed(repo)
    return True


def _forget_removed(repo: Any) -> bool:
    """DVC keeps records of stages that are gone, and reads all of them each time it is called."""
    from dvc.utils.serialize import modify_yaml

    stages = repo.index.stages
    recorded = stages[0].dvcfile.lockfile_contents.get("stages", {})
    gone = recorded.keys() - {stage.name for stage in stages}
    if gone:
        with modify_yaml(DVC_FILE.with_suffix(".lock")) as records:
            for name in gone:
                del records["stages"][name]
    return bool(gone)


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


def _refuse_damaged(artifacts: Iterable[tuple[Experiment, Task]]) -> None:
    """A manifest says what was made; what DVC would take into its cache are the files."""
    lines = []
    for experiment, task in artifacts:
        if wrong := list(differences(experiment.name, task)):
            again = f"snakemake --cores 1 --force {manifest_of(experiment.name, task)}"
            lines += [*wrong, f"`{again}` makes it again"]
    if lines:
        raise OcmError("\n".join([*lines, "nothing was recorded"]))


def _touch(experiments: Sequence[Experiment]) -> None:
    """Let Snakemake believe that it has made what lies there: it is current."""
    pages = [f"reports/{experiment.name}.html" for experiment in experiments]
    options = ["--no-hooks", "--quiet", "all", "--cores", "1", "--touch", "--forceall"]
    command = [str(Path(sys.executable).with_name("snakemake")), *options, "--", *pages]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise OcmError(f"`snakemake --touch` failed: {' '.join(said[-3:])}")
