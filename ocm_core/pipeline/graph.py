"""An experiment's graph: its tasks, what each takes and reads, and the code it is made of."""

from collections.abc import Collection
from functools import cache, cached_property, reduce
from operator import getitem
from pathlib import Path
from typing import Any, cast

from ocm_core import covariance
from ocm_core.errors import OcmError, unknown
from ocm_core.params.compose import compose
from ocm_core.pipeline.sources import sources
from ocm_core.pipeline.stage import Stage, Task, stages
from ocm_core.schema.block import Params
from ocm_core.schema.experiment import Experiment


class Graph:
    """The tasks of one experiment, inputs first."""

    def __init__(self, experiment: Experiment) -> None:
        self.experiment = experiment
        parts = {name: stage.parts_of(experiment) for name, stage in stages().items()}
        self.tasks = [Task(name, part) for name in parts for part in parts[name]]
        self.inputs: dict[Task, list[Task]] = {}
        for task in self.tasks:
            taken = dict.fromkeys(self.stage(task).takes(experiment, task.part))
            self.inputs[task] = [node for node in taken if node in self.tasks]

    def stage(self, task: Task) -> Stage[Params]:
        return stages()[task.stage]

    def find(self, stage: str, part: str) -> Task:
        """Return the task of that name, or raise an error that lists the valid ones."""
        if stage not in stages():
            raise OcmError(f"stage {unknown(stage, stages())}")
        name, valid = self.experiment.name, stages()[stage].parts_of(self.experiment)
        if not valid:
            raise OcmError(f"{name} has no stage {stage!r}: its parameters do not need it")
        if part not in valid:
            raise OcmError(f"part of stage {stage!r} of {name}: {unknown(part, valid)}")
        return Task(stage, part)

    def of_phase(self, phase: str) -> list[Task]:
        return [task for task in self.tasks if self.stage(task).phase == phase]

    def ancestry(self, wanted: Collection[Task]) -> list[Task]:
        """Return the wanted tasks and everything that they rest on, inputs first."""
        needed = set(wanted)
        for task in reversed(self.tasks):
            if task in needed:
                needed.update(self.inputs[task])
        return [task for task in self.tasks if task in needed]

    def before(self, task: Task) -> list[Task]:
        """Return the tasks that run first although this one reads nothing of theirs."""
        return [node for node in self.tasks if node.stage in self.stage(task).after]

    @cached_property
    def urgency(self) -> dict[Task, float]:
        """Return the network passes of the longest path from each task to the end of the run."""
        ahead = dict.fromkeys(self.tasks, 0.0)
        for task in reversed(self.tasks):
            ahead[task] += self.stage(task).work(self.experiment, task.part).passes
            for node in (*self.inputs[task], *self.before(task)):
                ahead[node] = max(ahead[node], ahead[task])
        return ahead

    def keys(self, task: Task) -> list[str]:
        return self.stage(task).keys(self.experiment, task.part)

    def values(self, keys: Collection[str]) -> dict[str, Any]:
        """Return the values behind dotted keys, as plain JSON."""
        tree: Any = self.experiment.model_dump(mode="json")
        return {key: reduce(getitem, key.split("."), tree) for key in sorted(keys)}

    def modules(self, task: Task) -> list[str]:
        """Return where a task's code begins: its own file, and what its parameters choose."""
        stage, experiment = self.stage(task), self.experiment
        labels = stage.methods(experiment, task.part)
        kinds = {covariance.split(experiment.methods[label].kind)[0] for label in labels}
        methods = [f"ocm_core.covariance.{kind}" for kind in sorted(kinds)]
        return [stage.module, *methods, *stage.plugins(experiment, task.part)]

    def source_files(self, task: Task) -> list[Path]:
        return sources(self.modules(task))


@cache
def graph_of(name: str) -> Graph:
    """Return the graph of the experiment of that name, as `params/` has it now."""
    return Graph(compose(name))


def restrict(experiment: Experiment, keys: Collection[str], stage: str) -> Experiment:
    """Return the experiment without the keys that `stage` does not declare; reading one raises."""
    return cast(Experiment, _narrow(experiment, {"name", *keys}, stage, ""))


def _narrow(node: Any, keys: Collection[str], stage: str, path: str) -> Any:
    is_block = not isinstance(node, dict)
    names = [*type(node).model_fields, *(node.model_extra or {})] if is_block else [*node]
    kept, withheld = {}, {}
    for name in names:
        child, dotted = getattr(node, name) if is_block else node[name], f"{path}{name}"
        if dotted in keys:
            kept[name] = child
        elif any(key.startswith(f"{dotted}.") for key in keys):
            kept[name] = _narrow(child, keys, stage, f"{dotted}.")
        else:
            remedy = f"add the key to `reads` in ocm_core/stages/{stage}.py"
            withheld[name] = f"stage {stage!r} reads {dotted} without declaring it: {remedy}"
    if not is_block:
        return kept
    block = type(node).model_construct(**kept)
    block._withheld = withheld
    for name in withheld:
        vars(block).pop(name, None)  # a default would hide that the key is not declared
    return block
