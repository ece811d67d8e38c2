"""What `ocm doctor` says: the computer, what an experiment needs, and what is missing."""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from ocm_core.params.resolved import load
from ocm_core.pipeline.staleness import states
from ocm_core.pipeline.table import Task
from ocm_core.planning.cpu_times import expected_seconds
from ocm_core.planning.disk_space import encode_shards, to_write
from ocm_core.planning.machine import Machine, PinnedPackage, machine, packages
from ocm_core.planning.published_files import NeededFile, needed_files
from ocm_core.schema.experiment import Experiment
from ocm_core.text import plural, text_table

LOGS = Path("logs")


@dataclass(frozen=True)
class Prospect:
    """What there is of an experiment already, and what the rest will take."""

    name: str
    states: dict[str, str]  # by task
    files: tuple[NeededFile, ...]
    bytes: dict[str, int]  # still to be written, by stage
    shards: int  # that `encode` writes
    seconds: dict[str, float | None]  # that tasks which are not current took in an earlier run
    expected: dict[str, float | None]  # that they will take, from measured times per image
    gpu_hours: dict[str, float]  # of the whole experiment by GPU; empty: not computed

    @property
    def problems(self) -> list[str]:
        return [f"{file.path}: {file.state}; {file.remedy}" for file in self.files if file.hinders]


@dataclass(frozen=True)
class Diagnosis:
    machine: Machine
    packages: tuple[PinnedPackage, ...]
    prospect: Prospect | None

    @property
    def problems(self) -> list[str]:
        """What keeps the experiment from running to its end."""
        found = [f"{p}; run `make env`" for p in self.packages if p.installed is None]
        if self.prospect is None:
            return found
        wanted, free = sum(self.prospect.bytes.values()), self.machine.free_disk
        if wanted > free:
            found.append(f"disk: {_size(wanted)} are still to be written, {_size(free)} are free")
        return [*found, *self.prospect.problems]


def diagnose(experiment: Experiment | None) -> Diagnosis:
    prospect = None if experiment is None else _prospect(experiment)
    return Diagnosis(machine(), tuple(packages()), prospect)


def as_json(diagnosis: Diagnosis) -> str:
    return json.dumps({**asdict(diagnosis), "problems": diagnosis.problems}, indent=2, default=str)


def as_text(diagnosis: Diagnosis) -> str:
    parts = [list(_machine(diagnosis))]
    if diagnosis.prospect:
        parts += _experiment(diagnosis.prospect)
    said = plural(len(diagnosis.problems), "problem")
    parts.append(
        [f"{said}:", *diagnosis.problems] if diagnosis.problems else ["nothing is missing"]
    )
    return "\n\n".join("\n  ".join(lines) for lines in parts)


def prospects(experiment: Experiment) -> list[str]:
    """What of an experiment is to be made, and how long it took before; a line each."""
    prospect = _prospect(experiment)
    return _to_do(prospect) if prospect.seconds else [f"{prospect.name}: everything is current"]


def _prospect(experiment: Experiment) -> Prospect:
    found = states(experiment)
    waiting = [task for task, state in found.items() if state != "current"]
    files = needed_files(experiment, found)
    fetched = sum(file.bytes or 0 for file in files if file.found is None and file.address)
    return Prospect(
        name=experiment.name,
        states={str(task): state for task, state in found.items()},
        files=tuple(files),
        bytes=({"download": fetched} if fetched else {}) | to_write(experiment, found),
        shards=encode_shards(experiment),
        seconds={str(task): earlier_seconds(experiment.name, task) for task in waiting},
        expected={str(task): expected_seconds(experiment, task) for task in waiting},
        gpu_hours=gpu_hours(experiment.name),
    )


def earlier_seconds(experiment: str, task: Task) -> float | None:
    """That the task took in its last run here, by Snakemake's benchmark file."""
    file = LOGS / experiment / task.stage / f"{task.part}.benchmark.tsv"
    try:
        with file.open(newline="") as stream:
            rows = list(csv.DictReader(stream, delimiter="\t"))
        return float(rows[-1]["s"])
    except (FileNotFoundError, IndexError, KeyError, TypeError, ValueError):
        return None  # never run here, or cut short by a kill: no run waits for a note of its time


def gpu_hours(name: str) -> dict[str, float]:
    """Of a whole experiment in float32, as `ocm cost` computes them; of published networks only."""
    if "published" not in load(name).network.scores:
        return {}
    from ocm_core.planning.cost_report import is_counted, workloads
    from ocm_core.planning.roofline import A100, H100, Utilisation

    if not is_counted(load(name)):
        return {}
    (workload,) = workloads([name])
    return {gpu.name: workload.hours(gpu, "float32", Utilisation()) for gpu in (A100, H100)}


def _machine(diagnosis: Diagnosis) -> Iterator[str]:
    here = diagnosis.machine
    build = f"CUDA {here.cuda}" if here.cuda else "without CUDA"
    yield f"Python {here.python}, torch {here.torch} ({build}), {here.system}"
    room = f"{_size(here.memory)} of memory, {_size(here.free_disk)} of disk free"
    yield f"{plural(here.cores, 'core')}, {room}"
    for device in here.devices:
        yield device.name + (f", {_size(device.memory)}" if device.memory else "")
    if not here.devices:
        yield "no GPU: everything runs on the CPU"
    differing = [package for package in diagnosis.packages if package.differs]
    alike = len(diagnosis.packages) - len(differing)
    if diagnosis.packages:
        total = len(diagnosis.packages)
        yield f"{plural(alike, 'package')} of {total} as requirements.txt pins them"
    yield from map(str, differing)


def _experiment(prospect: Prospect) -> Iterator[list[str]]:
    counts = Counter(state.partition(":")[0] for state in prospect.states.values())
    said = ", ".join(f"{count} {state}" for state, count in counts.items())
    yield [f"{prospect.name}: {plural(len(prospect.states), 'task')}, {said}"]
    if prospect.seconds:
        yield _to_do(prospect)
    if prospect.gpu_hours:
        said = ", ".join(f"{hours:,.0f} h on {gpu}" for gpu, hours in prospect.gpu_hours.items())
        yield [f"all of it in float32, computed by `ocm cost` and not measured: {said}"]
    if prospect.files:
        shown = [
            (str(file.path), "unknown" if file.bytes is None else _size(file.bytes), file.state)
            for file in prospect.files
        ]
        yield ["published files", *text_table(("file", "size", "state"), shown, right=("size",))]
    if prospect.bytes:
        notes = {"encode": f", {plural(prospect.shards, 'shard')}"}
        sizes = [(s + notes.get(s, ""), _size(size)) for s, size in prospect.bytes.items()]
        heading = "disk still to be filled, without networks, features and DVC's copies"
        yield [heading, *text_table(("for", "size"), sizes, right=("size",))]


def _to_do(prospect: Prospect) -> list[str]:
    heads = ("stage", "tasks", "state", "took before", "expected")
    right = ("tasks", "took before", "expected")
    return [*_totals(prospect), *text_table(heads, list(_waiting(prospect)), right=right)]


def _waiting(prospect: Prospect) -> Iterator[tuple[str, str, str, str, str]]:
    """One row per stage and state; `ocm status` lists each task."""
    groups: dict[tuple[str, str], list[str]] = {}
    for task in prospect.seconds:
        key = (task.partition("/")[0], prospect.states[task])
        groups.setdefault(key, []).append(task)
    for (stage, state), group in groups.items():
        before, expected = (_sum(times, group) for times in (prospect.seconds, prospect.expected))
        yield stage, str(len(group)), state, before, expected


def _sum(times: Mapping[str, float | None], group: Sequence[str]) -> str:
    known = [seconds for task in group if (seconds := times[task]) is not None]
    some = f" ({len(known)} of {len(group)})" if len(known) < len(group) else ""
    return f"{_seconds(sum(known))}{some}" if known else "unknown"


def _totals(prospect: Prospect) -> Iterator[str]:
    """Sums over tasks, which are more than the time of a run with several at once."""
    yield _total(prospect)
    expected = [seconds for seconds in prospect.expected.values() if seconds is not None]
    if expected:
        said = f"{sum(expected) / 3600:.1f} h for {plural(len(expected), 'task')} one by one"
        yield f"expected on one thread of a CPU, from times measured per image: {said}"


def _total(prospect: Prospect) -> str:
    known = [seconds for seconds in prospect.seconds.values() if seconds is not None]
    unknown = len(prospect.seconds) - len(known)
    if not known:
        return "to do, for a time unknown here: no task has been measured"
    rest = f"; {plural(unknown, 'task')} unknown here" if unknown else ""
    return f"to do: {_seconds(sum(known))} for {plural(len(known), 'task')} one by one{rest}"


def _seconds(value: float) -> str:
    return f"{value:.1f} s" if value < 100 else f"{value / 60:.1f} min"


def _size(count: int) -> str:
    for unit, scale in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if count >= scale:
            return f"{count / scale:.1f} {unit}"
    return f"{count / 1e3:.1f} kB"
