"""All that the doctor finds, as text and as JSON, and the part of it that stands in the way."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass

from ocm_core.pipeline.staleness import states
from ocm_core.planning.disk import encode_shards, to_write
from ocm_core.planning.files import IN_PLACE, PublishedFile, needed
from ocm_core.planning.machine import Machine, Package, machine, packages
from ocm_core.planning.times import computed, measured
from ocm_core.schema.experiment import Experiment
from ocm_core.text import plural, text_table


@dataclass(frozen=True)
class Prospect:
    """Of one experiment: what there is, and what it will take."""

    name: str
    states: dict[str, str]  # by task
    files: tuple[PublishedFile, ...]
    bytes: dict[str, int]  # still to be written, by stage
    shards: int  # that `encode` writes
    seconds: dict[str, float | None]  # of earlier runs of the tasks that are not current
    gpu_hours: dict[str, float]  # of the whole experiment on one GPU, computed

    @property
    def problems(self) -> list[str]:
        wrong = (file for file in self.files if file.state != IN_PLACE)
        return [f"{f.path}: {f.state}; {'or ' * bool(f.address)}{f.remedy}" for f in wrong]


@dataclass(frozen=True)
class Findings:
    machine: Machine
    packages: tuple[Package, ...]
    prospect: Prospect | None

    @property
    def problems(self) -> list[str]:
        """What is missing and needed: with any of it, starting is in vain."""
        found = [f"{p}; run `make env`" for p in self.packages if p.installed is None]
        if self.prospect is None:
            return found
        wanted, free = sum(self.prospect.bytes.values()), self.machine.free_disk
        if wanted > free:
            found.append(f"disk: {_size(wanted)} are still to be written, {_size(free)} are free")
        return [*found, *self.prospect.problems]


def examine(experiment: Experiment | None) -> Findings:
    prospect = None if experiment is None else _prospect(experiment)
    return Findings(machine(), tuple(packages()), prospect)


def as_json(findings: Findings) -> str:
    return json.dumps({**asdict(findings), "problems": findings.problems}, indent=2, default=str)


def terminal(findings: Findings) -> str:
    parts = [list(_machine(findings))]
    if findings.prospect:
        parts += _experiment(findings.prospect)
    said = plural(len(findings.problems), "problem")
    parts.append([f"{said}:", *findings.problems] if findings.problems else ["nothing is missing"])
    return "\n\n".join("\n  ".join(lines) for lines in parts)


def _prospect(experiment: Experiment) -> Prospect:
    found = states(experiment)
    waiting = [task for task, state in found.items() if state != "current"]
    files = needed(experiment, found)
    fetched = sum(file.bytes or 0 for file in files if file.found is None and file.address)
    return Prospect(
        name=experiment.name,
        states={str(task): state for task, state in found.items()},
        files=tuple(files),
        bytes=({"download": fetched} if fetched else {}) | to_write(experiment, found),
        shards=encode_shards(experiment),
        seconds={str(task): measured(experiment.name, task) for task in waiting},
        gpu_hours=computed(experiment.name),
    )


def _machine(findings: Findings) -> Iterator[str]:
    here = findings.machine
    build = f"CUDA {here.cuda}" if here.cuda else "without CUDA"
    yield f"Python {here.python}, torch {here.torch} ({build}), {here.system}"
    room = f"{_size(here.memory)} of memory, {_size(here.free_disk)} of disk free"
    yield f"{plural(here.cores, 'core')}, {room}"
    for device in here.devices:
        yield device.name + (f", {_size(device.memory)}" if device.memory else "")
    if not here.devices:
        yield "no GPU: everything runs on the CPU"
    differing = [package for package in findings.packages if package.differs]
    alike = len(findings.packages) - len(differing)
    yield f"{plural(alike, 'package')} of {len(findings.packages)} as requirements.txt pins them"
    yield from map(str, differing)


def _experiment(prospect: Prospect) -> Iterator[list[str]]:
    counts = Counter(state.partition(":")[0] for state in prospect.states.values())
    said = ", ".join(f"{count} {state}" for state, count in counts.items())
    yield [f"{prospect.name}: {plural(len(prospect.states), 'task')}, {said}"]
    if prospect.seconds:
        heads = ("stage", "tasks", "state", "took before")
        yield [_total(prospect), *text_table(heads, list(_waiting(prospect)), right=heads[1::2])]
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


def _waiting(prospect: Prospect) -> Iterator[tuple[str, str, str, str]]:
    """Tasks of one stage and in one state are one row; `ocm status` names each."""
    groups: dict[tuple[str, str], list[float | None]] = {}
    for task, seconds in prospect.seconds.items():
        key = (task.partition("/")[0], prospect.states[task])
        groups.setdefault(key, []).append(seconds)
    for (stage, state), taken in groups.items():
        known = [seconds for seconds in taken if seconds is not None]
        some = f" ({len(known)} of {len(taken)})" if len(known) < len(taken) else ""
        text = f"{_seconds(sum(known))}{some}" if known else "unknown"
        yield stage, str(len(taken)), state, text


def _total(prospect: Prospect) -> str:
    """Seconds of jobs: those that run side by side take less by the clock."""
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
