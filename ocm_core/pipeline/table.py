"""The table of stages, from which `dvc.yaml` is generated and against which the rules are checked.

A stage says which parameters it reads, into which parts it falls for an experiment (none: the
experiment does not need it), which artifacts each part reads and which covariance methods it uses.
A new stage is one entry here, one rule in `workflow/rules/` and one module in `ocm_core/stages/`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from ocm_core.errors import OcmError, unknown
from ocm_core.params.schema import Experiment
from ocm_core.pipeline.cells import cells_of, parts

Names = Callable[[Experiment, str], list[str]]


def _none(experiment: Experiment, part: str) -> list[str]:
    return []


def _once(experiment: Experiment) -> list[str]:
    return ["all"]


@dataclass(frozen=True)
class Stage:
    name: str
    reads: tuple[str, ...]  # dotted parameter keys
    parts: Callable[[Experiment], list[str]] = _once
    inputs: Names = _none  # "stage/part"; those that are not in the experiment's graph are left out
    methods: Names = _none  # labels of the methods whose options and code it uses


class Task(NamedTuple):
    """A node of an experiment's graph: one job, one artifact."""

    stage: str
    part: str

    def __str__(self) -> str:
        return f"{self.stage}/{self.part}"


def _headed(experiment: Experiment, part: str) -> list[str]:
    return [label for label, method in experiment.methods.items() if method.needs == "head"]


def _sampled(experiment: Experiment, part: str) -> list[str]:
    return sorted({cell.method for cell in cells_of(experiment, part)})


def _every(experiment: Experiment, part: str) -> list[str]:
    return list(experiment.methods)


def _before(experiment: Experiment, labels: Iterable[str]) -> list[str]:
    """The stages that these methods need before they can be used."""
    needs = {experiment.methods[label].needs for label in labels}
    head = "head" in needs
    moments = "moments" in needs or (head and experiment.head.baseline == "moments")
    return ["score", *["moments"] * moments, *["heads"] * head]


def _per_score(stage: str) -> Callable[[Experiment], list[str]]:
    def parts_of(experiment: Experiment) -> list[str]:
        needed = stage in _before(experiment, experiment.methods)
        return list(experiment.network.scores) if needed else []

    return parts_of


def _sample_inputs(experiment: Experiment, part: str) -> list[str]:
    scores = dict.fromkeys(cell.score for cell in cells_of(experiment, part))
    stages = _before(experiment, _sampled(experiment, part))
    return [f"{stage}/{score}" for score in scores for stage in stages]


def _model_inputs(experiment: Experiment, part: str) -> list[str]:
    stages = ("score", "moments", "heads")
    return ["encode/all", *(f"{s}/{score}" for score in experiment.network.scores for s in stages)]


_MODEL = ("data", "schedule", "network")

STAGES = (
    Stage("encode", reads=("data",)),
    Stage(
        "score",
        reads=(*_MODEL, "train.score"),
        parts=lambda experiment: [s for s in experiment.network.scores if s == "learned"],
        inputs=lambda experiment, part: ["encode/all"],
    ),
    Stage(
        "moments",
        reads=(*_MODEL, "train.moments"),
        parts=_per_score("moments"),
        inputs=lambda experiment, part: ["encode/all", f"score/{part}"],
    ),
    Stage(
        "heads",
        reads=(*_MODEL, "head", "train.heads"),
        parts=_per_score("heads"),
        inputs=lambda experiment, part: ["encode/all", f"score/{part}", f"moments/{part}"],
        methods=_headed,
    ),
    Stage(
        "sample",
        reads=(*_MODEL, "head", "sample"),
        parts=lambda experiment: list(parts(experiment)),
        inputs=_sample_inputs,
        methods=_sampled,
    ),
    Stage(
        "evaluate_samples",
        reads=("data", "network.scores", "sample", "evaluate.mmd"),
        parts=lambda experiment: ["all"] if experiment.evaluate.mmd else [],
        inputs=lambda experiment, part: ["encode/all", *(f"sample/{p}" for p in parts(experiment))],
    ),
    Stage(
        "evaluate_model",
        reads=(*_MODEL, "head", "evaluate.covariance_error"),
        parts=lambda experiment: ["all"] if experiment.evaluate.covariance_error else [],
        inputs=_model_inputs,
        methods=_every,
    ),
    Stage(
        "report",
        reads=(*_MODEL, "methods", "head", "train", "sample", "evaluate", "report"),
        inputs=lambda experiment, part: [
            "evaluate_samples/all",
            "evaluate_model/all",
            *(f"sample/{p}" for p in parts(experiment)),
            *_model_inputs(experiment, part),
        ],
    ),
)

BY_NAME = {stage.name: stage for stage in STAGES}


def tasks(experiment: Experiment) -> list[Task]:
    """The nodes of an experiment's graph, inputs first."""
    return [Task(stage.name, part) for stage in STAGES for part in stage.parts(experiment)]


def find(experiment: Experiment, stage: str, part: str) -> Task:
    if stage not in BY_NAME:
        raise OcmError(f"stage {unknown(stage, BY_NAME)}")
    valid = BY_NAME[stage].parts(experiment)
    if not valid:
        raise OcmError(f"{experiment.name} has no stage {stage!r}: its parameters do not need it")
    if part not in valid:
        raise OcmError(f"part of stage {stage!r} of {experiment.name}: {unknown(part, valid)}")
    return Task(stage, part)


def inputs(experiment: Experiment, task: Task) -> list[Task]:
    present = {str(node): node for node in tasks(experiment)}
    asked = BY_NAME[task.stage].inputs(experiment, task.part)
    return [present[name] for name in asked if name in present]


def reads(experiment: Experiment, task: Task) -> list[str]:
    stage = BY_NAME[task.stage]
    return [*stage.reads, *(f"methods.{label}" for label in stage.methods(experiment, task.part))]


def modules(experiment: Experiment, task: Task) -> list[str]:
    """Where the code of a task begins: its own module, and those that its parameters choose."""
    stage = BY_NAME[task.stage]
    kinds = {experiment.methods[label].kind for label in stage.methods(experiment, task.part)}
    chosen = [f"ocm_core.covariance.{kind}" for kind in sorted(kinds)]
    if "data" in stage.reads:
        chosen.append(f"ocm_core.data.{experiment.data.kind}")
    if "network" in stage.reads:
        chosen += sorted({_network(experiment, score) for score in _scores(experiment, task)})
    return [f"ocm_core.stages.{task.stage}", *chosen]


def _scores(experiment: Experiment, task: Task) -> Iterable[str]:
    if task.stage == "sample":
        return {cell.score for cell in cells_of(experiment, task.part)}
    return [score for score in experiment.network.scores if task.part in (score, "all")]


def _network(experiment: Experiment, score: str) -> str:
    """The true score is a file named after the kind of data, any other one after its family."""
    name = experiment.data.kind if score == "true" else experiment.network.family
    return f"ocm_core.networks.{name}"


def outputs(experiment: Experiment, task: Task) -> dict[str, str]:
    """What a task leaves outside its artifact: only the report does, by name."""
    if task.stage != "report":
        return {}
    base = f"reports/{experiment.name}"
    data = {f"{name}.csv": f"{base}.plots/{name}.csv" for name in plots(experiment)}
    return {"html": f"{base}.html", "metrics": f"{base}.metrics.json", **data}


def plots(experiment: Experiment) -> dict[str, tuple[str, Collection[str]]]:
    """The report's plot data: name of the CSV file, its x column, and a y column per method."""
    samplers = experiment.sample.samplers
    data: dict[str, tuple[str, Collection[str]]] = {}
    for score in experiment.network.scores:
        if experiment.evaluate.covariance_error:
            chains = [sampler for sampler in samplers.values() if sampler.kind == "ddpm"]
            columns = dict.fromkeys(label for chain in chains for label in chain.methods)
            data[f"covariance_error-{score}"] = ("t", list(columns))
        if experiment.evaluate.mmd:
            for label, sampler in samplers.items():
                data[f"mmd-{label}-{score}"] = ("steps", sampler.methods)
    return data
