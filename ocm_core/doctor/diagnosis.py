"""Collect and print what `ocm doctor` says: the computer, and what an experiment needs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby

from ocm_core.doctor.disk import to_write
from ocm_core.doctor.files import NeededFile, needed_files
from ocm_core.doctor.machine import Machine, PinnedPackage, diffusers_problem, machine, packages
from ocm_core.doctor.pace import A100_PEAK, EFFICIENCY, metric, pace_of, this_device
from ocm_core.doctor.times import duration, operations, seconds
from ocm_core.doctor.work import work_of
from ocm_core.pipeline.graph import Graph
from ocm_core.pipeline.stage import Task
from ocm_core.pipeline.state import UP_TO_DATE, states
from ocm_core.text import plural, text_table

TextLines = list[str]


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
    """The tasks of an experiment that are done, and the work that is left."""

    name: str
    tasks: tuple[TaskReport, ...]
    files: tuple[NeededFile, ...]
    bytes: dict[str, int | None]  # still to be written, by stage; None: not known
    pace: str

    @property
    def waiting(self) -> list[TaskReport]:
        return [task for task in self.tasks if task.state != UP_TO_DATE]

    @property
    def problems(self) -> TextLines:
        return [f"{file.path}: {file.state}; {file.remedy}" for file in self.files if file.blocks]


@dataclass(frozen=True)
class Diagnosis:
    """Everything that `ocm doctor` reports."""

    machine: Machine
    packages: tuple[PinnedPackage, ...]
    diffusers: str | None  # why it cannot be imported
    experiment: ExperimentReport | None

    @property
    def problems(self) -> TextLines:
        """Return what keeps the experiment from running to its end."""
        problems = [f"{p}; run `make env`" for p in self.packages if p.installed is None]
        problems += [self.diffusers] if self.diffusers else []
        if self.experiment is None:
            return problems
        needed = sum(count or 0 for count in self.experiment.bytes.values())
        if needed > (free := self.machine.free_disk):
            problems.append(
                f"disk: {_size(needed)} are still to be written, {_size(free)} are free"
            )
        return [*problems, *self.experiment.problems]


def diagnose(graph: Graph | None) -> Diagnosis:
    """Look at this computer, and at what an experiment needs."""
    report = None if graph is None else report_on(graph)
    return Diagnosis(machine(), tuple(packages()), diffusers_problem(), report)


def report_on(graph: Graph) -> ExperimentReport:
    """Look at every task of an experiment, and at what it reads and writes."""
    state, device = states(graph), this_device()
    files = needed_files(graph, state)
    download = sum(file.bytes or 0 for file in files if file.on_disk is None and file.address)
    space: dict[str, int | None] = {"download": download} if download else {}
    return ExperimentReport(
        name=graph.experiment.name,
        tasks=tuple(_task(graph, task, state[task], device) for task in graph.tasks),
        files=tuple(files),
        bytes=space | to_write(graph.experiment, state),
        pace=str(pace_of(graph.experiment, device)),
    )


def _task(graph: Graph, task: Task, state: str, device: str) -> TaskReport:
    experiment = graph.experiment
    return TaskReport(
        stage=task.stage,
        part=task.part,
        phase=graph.stage(task).phase,
        state=state,
        passes=work_of(experiment, task).passes,
        operations=operations(experiment, task),
        seconds=seconds(experiment, task, device),
    )


def as_json(diagnosis: Diagnosis) -> str:
    """Return the diagnosis for scripts."""
    return json.dumps({**asdict(diagnosis), "problems": diagnosis.problems}, indent=2, default=str)


def as_text(diagnosis: Diagnosis) -> str:
    """Return the diagnosis for people."""
    parts = [list(_machine(diagnosis))]
    if diagnosis.experiment:
        parts += _experiment(diagnosis.experiment)
    problems = diagnosis.problems
    heading = f"{plural(len(problems), 'problem')}:" if problems else "nothing is missing"
    parts.append([heading, *problems])
    return "\n\n".join("\n  ".join(lines) for lines in parts)


def _machine(diagnosis: Diagnosis) -> Iterator[str]:
    here = diagnosis.machine
    build = f"CUDA {here.cuda}" if here.cuda else "without CUDA"
    yield f"Python {here.python}, torch {here.torch} ({build}), {here.system}"
    room = f"{_size(here.memory)} of memory, {_size(here.free_disk)} of disk free"
    yield f"{plural(here.cores, 'core')}, {room}"
    for name, memory in here.gpus.items():
        yield name + (f", {_size(memory)}" if memory else "")
    if not here.gpus:
        yield "no GPU: everything runs on the CPU"
    differing = [package for package in diagnosis.packages if package.differs]
    if total := len(diagnosis.packages):
        yield f"{total - len(differing)} of {total} packages as requirements.txt pins them"
    yield from map(str, differing)


def _experiment(report: ExperimentReport) -> Iterator[TextLines]:
    counts = Counter(task.state.partition(":")[0] for task in report.tasks)
    listed = ", ".join(f"{count} {state}" for state, count in counts.items())
    total = sum(task.seconds for task in report.waiting)
    to_do = f"to do: about {duration(total)} one by one, at {report.pace}"
    head = f"{report.name}: {plural(len(report.tasks), 'task')}, {listed}"
    yield [head, to_do if report.waiting else "nothing to do"]
    yield _stages(report.tasks)
    yield _phases(report.tasks)
    if report.files:
        files = [(str(file.path), _size(file.bytes), file.state) for file in report.files]
        yield ["files to read", *text_table(("file", "size", "state"), files, right=("size",))]
    if report.bytes:
        sizes = [(stage, _size(count)) for stage, count in report.bytes.items()]
        heading = "disk still to be filled, without networks, features and DVC's copies"
        yield [heading, *text_table(("for", "size"), sizes, right=("size",))]


def _stages(tasks: Sequence[TaskReport]) -> TextLines:
    """Print a row per stage and state; `ocm status` lists each task."""
    heads = ("stage", "tasks", "state", "network passes", "operations", "time here")
    rows = []
    for (stage, state), group in groupby(tasks, key=lambda task: (task.stage, task.state)):
        same = list(group)
        time = "" if state == UP_TO_DATE else duration(sum(task.seconds for task in same))
        rows.append((stage, str(len(same)), state, *_work(same), time))
    return ["tasks", *text_table(heads, rows, right=(heads[1], *heads[3:]))]


def _phases(tasks: Sequence[TaskReport]) -> TextLines:
    """Print the work of the whole experiment by phase, finished or not."""
    heads = ("phase", "network passes", "operations", "on one A100")
    groups = [(phase, list(group)) for phase, group in groupby(tasks, key=lambda task: task.phase)]
    rows = [
        (phase, *_work(group), duration(_operations(group) / (EFFICIENCY * A100_PEAK)))
        for phase, group in (*groups, ("all", list(tasks)))
        if any(task.passes for task in group)
    ]
    how = f"{EFFICIENCY:.0%} of its TF32 peak of {metric(A100_PEAK)}FLOP/s"
    heading = f"work of all tasks; the time on an A100 is computed at {how}, not measured"
    return [heading, *text_table(heads, rows, right=heads[1:])]


def _work(tasks: Sequence[TaskReport]) -> tuple[str, str]:
    passes = sum(task.passes for task in tasks)
    return (metric(passes).strip(), f"{metric(_operations(tasks))}FLOP") if passes else ("", "")


def _operations(tasks: Sequence[TaskReport]) -> float:
    return sum(task.operations for task in tasks)


def _size(count: int | None) -> str:
    if count is None:
        return "unknown"
    for unit, scale in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if count >= scale:
            return f"{count / scale:.1f} {unit}"
    return f"{count / 1e3:.1f} kB"
