"""How long a run will take, by what its tasks took here before, or images on another machine."""

from __future__ import annotations

from collections.abc import Mapping

from ocm_core.pipeline.table import Task, inputs
from ocm_core.planning.cpu_times import expected_seconds
from ocm_core.planning.diagnosis import earlier_seconds, gpu_hours
from ocm_core.schema.experiment import Experiment
from ocm_core.text import plural

Todo = list[tuple[Experiment, Task]]  # inputs first


def expectation(todo: Todo, cores: int) -> str:
    """One line for the start of a run."""
    earlier = {(e.name, task): earlier_seconds(e.name, task) for e, task in todo}
    elsewhere = {(e.name, task): expected_seconds(e, task) for e, task in todo}
    known = {
        key: seconds
        for key, here in earlier.items()
        if (seconds := elsewhere[key] if here is None else here) is not None
    }
    jobs, new = plural(len(todo), "job"), sum(here is None for here in earlier.values())
    if not known:
        return f"{jobs}, none of which has run here yet{_computed(todo)}"
    time = duration(wall_seconds(todo, known, cores))
    if not new:
        return f"{jobs}, about {time} here, by what they took before"
    unknown = len(todo) - len(known)
    short = f" and {plural(unknown, 'job')} of unknown length" if unknown else ""
    return (
        f"{jobs}, about {time}{short}: {new} have not run here yet, and are counted by times"
        " measured on another machine"
    )


def wall_seconds(todo: Todo, taken: Mapping[tuple[str, Task], float], cores: int) -> float:
    """The longest chain of tasks, or their sum over all cores; unknown ones count nothing."""
    ends: dict[tuple[str, Task], float] = {}
    for experiment, task in todo:
        before = [ends.get((experiment.name, node), 0.0) for node in inputs(experiment, task)]
        key = experiment.name, task
        ends[key] = max(before, default=0.0) + taken.get(key, 0.0)
    return max(max(ends.values(), default=0.0), sum(taken.values()) / cores)


def duration(seconds: float) -> str:
    """`40 s`, `12 min` or `3.5 h`."""
    if seconds < 100:
        return f"{max(1, round(seconds))} s"
    return f"{seconds / 60:.0f} min" if seconds < 100 * 60 else f"{seconds / 3600:.1f} h"


def _computed(todo: Todo) -> str:
    """What the cost model says, which knows the published networks."""
    said = [
        f"; all of {name} by `ocm cost`: "
        + ", ".join(f"{hours:,.0f} h on {gpu}" for gpu, hours in hours_on.items())
        for name in dict.fromkeys(experiment.name for experiment, _ in todo)
        if (hours_on := gpu_hours(name))
    ]
    return "".join(said)
