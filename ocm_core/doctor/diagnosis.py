"""Collect and print what `ocm doctor` says: the computer, and what an experiment needs."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from ocm_core.doctor import cost
from ocm_core.doctor.cost import duration, metric
from ocm_core.doctor.machine import MISSING, differing_packages, diffusers_problem, machine
from ocm_core.doctor.needs import DOWNLOAD, IN_PLACE, NeededFile, needed_files, to_write
from ocm_core.pipeline.graph import Graph
from ocm_core.pipeline.state import UP_TO_DATE, states
from ocm_core.sampling.checks import check_solvers
from ocm_core.text import plural, text_table


@dataclass(frozen=True)
class TaskReport:
    """A task of the graph: its state, its work and the time that it takes here."""

    stage: str
    part: str
    phase: str
    state: str
    passes: float
    operations: float
    seconds: float


@dataclass(frozen=True)
class ExperimentReport:
    """The tasks of an experiment, and what those that are not done read and write."""

    name: str
    tasks: list[TaskReport]
    files: list[NeededFile]
    bytes: dict[str, int | None]  # still to be written, by stage; None: not known
    pace: str


@dataclass(frozen=True)
class Diagnosis:
    """Everything that `ocm doctor` reports."""

    machine: dict[str, Any]
    packages: list[str]  # those that are not as they are pinned
    experiment: ExperimentReport | None
    problems: list[str]  # what keeps the experiment from running to its end


def diagnose(graph: Graph | None) -> Diagnosis:
    """Look at this computer, and at what an experiment needs."""
    here, differing, broken = machine(), differing_packages(), diffusers_problem()
    problems = [f"{line}; run `make env`" for line in differing if f" {MISSING}, " in line]
    if broken:
        problems.append(broken)
    elif graph:
        check_solvers(graph.experiment)
    if not graph:
        return Diagnosis(here, differing, None, problems)
    experiment, state, device = graph.experiment, states(graph), cost.this_device()
    tasks = []
    for task in graph.tasks:
        passes, network = cost.work_of(experiment, task)
        work = (passes, passes * network.operations, cost.seconds(experiment, task, device))
        tasks.append(TaskReport(*task, graph.stage(task).phase, state[task], *work))
    files, space = needed_files(graph, state), to_write(experiment, state)
    if download := sum(file.bytes or 0 for file in files if file.state == DOWNLOAD):
        space["download"] = download
    pace, free = str(cost.pace_of(experiment, device)), here["free_disk"]
    if (needed := sum(count or 0 for count in space.values())) > free:
        problems.append(f"disk: {_size(needed)} still to be written, {_size(free)} free")
    stopping = [file for file in files if file.state not in (IN_PLACE, DOWNLOAD)]
    problems += [f"{file.path}: {file.state}; {file.remedy}" for file in stopping]
    report = ExperimentReport(experiment.name, tasks, files, space, pace)
    return Diagnosis(here, differing, report, problems)


def as_text(diagnosis: Diagnosis) -> str:
    """Return the diagnosis for people."""
    here, problems = diagnosis.machine, diagnosis.problems
    build = f"CUDA {here['cuda']}" if here["cuda"] else "without CUDA"
    room = f"{_size(here['memory'])} of memory, {_size(here['free_disk'])} of disk free"
    machine = [
        f"Python {here['python']}, torch {here['torch']} ({build}), {here['system']}",
        f"{plural(here['cores'], 'core')}, {room}",
        *(f"{name}, {_size(memory)}" for name, memory in here["gpus"].items()),
        *([] if here["gpus"] else ["no GPU: everything runs on the CPU"]),
        *diagnosis.packages,
    ]
    experiment = _experiment(diagnosis.experiment) if diagnosis.experiment else []
    heading = f"{plural(len(problems), 'problem')}:" if problems else "nothing is missing"
    parts = [machine, *experiment, [heading, *problems]]
    return "\n\n".join("\n  ".join(lines) for lines in parts)


def _experiment(report: ExperimentReport) -> Iterator[list[str]]:
    counts = Counter(task.state.partition(":")[0] for task in report.tasks)
    listed = ", ".join(f"{count} {state}" for state, count in counts.items())
    waiting = [task for task in report.tasks if task.state != UP_TO_DATE]
    total = duration(sum(task.seconds for task in waiting))
    to_do = f"to do: about {total} one by one, at {report.pace}" if waiting else "nothing to do"
    yield [f"{report.name}: {plural(len(report.tasks), 'task')}, {listed}", to_do]
    how = f"{cost.EFFICIENCY:.0%} of its TF32 peak of {metric(cost.A100_PEAK)}FLOP/s"
    yield [f"tasks; the time on an A100 is computed at {how}", *_stages(report.tasks)]
    if report.files:
        files = [(file.path, _size(file.bytes), file.state) for file in report.files]
        yield ["files to read", *text_table(("file", "size", "state"), files, right=("size",))]
    if report.bytes:
        heading = "disk still to be filled, without networks, features and DVC's copies"
        yield [heading, *(f"{stage}  {_size(count)}" for stage, count in report.bytes.items())]


def _stages(tasks: Sequence[TaskReport]) -> list[str]:
    """Return a row per stage and state, and one for all; `ocm status` lists each task."""
    numbers = ("tasks", "network passes", "operations", "time here", "on one A100")
    groups = groupby(tasks, key=lambda task: (task.phase, task.stage, task.state))
    rows = []
    for kind, group in (*((kind, list(group)) for kind, group in groups), (("all", "", ""), tasks)):
        passes, count = (sum(getattr(t, key) for t in group) for key in ("passes", "operations"))
        work = (metric(passes).strip(), f"{metric(count)}FLOP") if passes else ("", "")
        left = sum(task.seconds for task in group if task.state != UP_TO_DATE)
        times = (duration(t) if t else "" for t in (left, count / cost.ASSUMED["cuda"]))
        rows.append((*kind, str(len(group)), *work, *times))
    return text_table(("phase", "stage", "state", *numbers), rows, right=numbers)


def _size(count: int | None) -> str:
    return "unknown" if count is None else f"{metric(count)}B"
