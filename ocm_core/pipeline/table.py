"""The table of stages, from which `dvc.yaml` is generated and which the rules of Snakemake ask.

A stage says which parameters it reads, into which parts it falls for an experiment (none: the
experiment does not need it), which artifacts each part reads, which covariance methods it uses and
what a job of it takes. A new stage is one entry here, one `use rule` in `workflow/rules/` and one
module in `ocm_core/stages/`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

from ocm_core.cells import cells_of, parts
from ocm_core.errors import OcmError, unknown
from ocm_core.pipeline import needs
from ocm_core.schema.experiment import Experiment

Names = Callable[[Experiment, str], list[str]]
Condition = Callable[[Experiment], bool]


def _none(experiment: Experiment, part: str) -> list[str]:
    return []


def _nothing(experiment: Experiment) -> list[str]:
    return []


def _once(experiment: Experiment) -> list[str]:
    return ["all"]


def _never(experiment: Experiment) -> bool:
    return False


def _always(experiment: Experiment) -> bool:
    return True


def _last(experiment: Experiment, part: str) -> int:
    return 0


def _all_timesteps(experiment: Experiment, part: str) -> int:
    return experiment.schedule.steps


def _longest_chain(experiment: Experiment, part: str) -> int:
    return max(cell.steps for cell in cells_of(experiment, part))


@dataclass(frozen=True)
class Resources:
    """What a job takes, or asks of a cluster; one that needs longer resumes when it is retried."""

    gpu: Condition = _never  # whether it computes on one
    memory: int = 4_000  # MB of the host
    minutes: int = 240


LIGHT = Resources()
CPUS_PER_GPU = 2  # one thread computes, one draws noise or reads ahead
NETWORK = Resources(gpu=_always, memory=16_000)  # weights of 2.7 GB beside the file they come from
LONG = replace(NETWORK, minutes=24 * 60)


@dataclass(frozen=True)
class Stage:
    name: str
    reads: tuple[str, ...]  # dotted parameter keys
    parts: Callable[[Experiment], list[str]] = _once
    inputs: Names = _none  # "stage/part"; those that are not in the experiment's graph are left out
    methods: Names = _none  # labels of the methods whose options and code it uses
    chosen: Names = _none  # further modules that its parameters choose
    files: tuple[str, ...] = ()  # of the repository, that it reads beside its own sources
    outside: Callable[[Experiment], list[str]] = _nothing  # paths of the user's that it reads
    after: tuple[str, ...] = ()  # stages that come first where there are any, whatever they hold
    shared: bool = False  # whether several processes can do it together
    opens_data: bool = False  # whether it reads the data set as published, and not what is stored
    resources: Resources = LIGHT
    local: bool = False  # on a cluster, whether it is done where Snakemake itself runs
    priority: Callable[[Experiment, str], int] = _last  # the job with the highest comes first

    def gpus(self, experiment: Experiment, per_job: int) -> int:
        """How many a job reserves. Only what several processes can do together uses several."""
        if not self.resources.gpu(experiment):
            return 0
        return per_job if self.shared else min(1, per_job)


class Task(NamedTuple):
    """A node of an experiment's graph: one job, one artifact."""

    stage: str
    part: str

    def __str__(self) -> str:
        return f"{self.stage}/{self.part}"


def _if(condition: Condition) -> Callable[[Experiment], list[str]]:
    return lambda experiment: ["all"] if condition(experiment) else []


VAE = ("fetch_vae/all", "vae/all")  # one of them, where there is an autoencoder
PIXELS = ("fetch_data/all",)  # what reading the data set itself waits for, where it is an archive
EVALUATIONS = ("points", "covariance", "likelihood", "loss", "deviation", "cost")
_NETWORK = ("data", "encode.latent", "schedule", "network")


def _judged(experiment: Experiment, part: str) -> list[str]:
    """Samples, and what they are compared with in which spaces."""
    return [
        f"sample/{part}",
        *needs.reference_tasks(experiment),
        *("classifier/all", "fetch_features/all"),
        *VAE,
    ]


def _judging(experiment: Experiment, part: str) -> list[str]:
    return [*needs.feature_modules(experiment, part), *needs.latent_module(experiment, part)]


# Of what is fetched, the checkpoint comes first: it is smaller than the data, and likelier missing.
STAGES = (
    Stage("publish_score", reads=("network",), parts=_if(needs.has_generated_score)),
    Stage(
        "publish_vae",
        reads=("encode.latent",),
        parts=_if(lambda experiment: needs.vae_origin(experiment) == "generated"),
    ),
    Stage(
        "fetch_score",
        reads=("network",),
        parts=_if(lambda experiment: "published" in experiment.network.scores),
        inputs=lambda experiment, part: ["publish_score/all"],
        chosen=needs.fetched_score_module,
        local=True,
    ),
    Stage(
        "fetch_vae",
        reads=("encode.latent",),
        parts=_if(lambda experiment: needs.vae_origin(experiment) not in (None, "trained")),
        inputs=lambda experiment, part: ["publish_vae/all"],
        after=("fetch_score",),
        local=True,
    ),
    Stage(
        "fetch_features",
        reads=("evaluate.features",),
        parts=_if(lambda experiment: "inception" in needs.feature_spaces(experiment)),
        chosen=needs.feature_modules,
        after=("fetch_score",),
        local=True,
    ),
    Stage(
        "fetch_reference",
        reads=("evaluate.features",),
        parts=_if(needs.published_reference),
        after=("fetch_score",),
        local=True,
    ),
    Stage(
        "fetch_data",
        opens_data=True,
        reads=("data",),
        parts=_if(lambda experiment: experiment.data.archived),
        outside=needs.own_images,
        after=("fetch_score",),
        local=True,
    ),
    Stage(
        "vae",
        opens_data=True,
        reads=("data", "encode.latent", "train.vae"),
        parts=_if(lambda experiment: needs.vae_origin(experiment) == "trained"),
        inputs=lambda experiment, part: [*PIXELS],
        shared=True,
        resources=LONG,
    ),
    Stage(
        "encode",
        opens_data=True,
        reads=("data", "encode"),
        parts=needs.encode_parts,
        inputs=lambda experiment, part: [*PIXELS, *VAE],
        chosen=needs.encode_modules,
        resources=replace(NETWORK, gpu=needs.has_latents),
    ),
    Stage(
        "score",
        reads=(*_NETWORK, "train.score"),
        parts=lambda experiment: [s for s in experiment.network.scores if s == "learned"],
        inputs=needs.encode_tasks,
        shared=True,
        resources=LONG,
    ),
    Stage(
        "moments",
        reads=(*_NETWORK, "train.moments"),
        parts=needs.per_score("moments"),
        inputs=lambda experiment, part: [*needs.encode_tasks(experiment), needs.score_task(part)],
        shared=True,
        resources=NETWORK,
    ),
    Stage(
        "heads",
        reads=(*_NETWORK, "head", "train.heads"),
        parts=needs.per_score("heads"),
        inputs=needs.head_inputs,
        methods=needs.with_heads,
        shared=True,
        resources=LONG,
    ),
    Stage(
        "classifier",
        opens_data=True,
        reads=("data", "train.classifier"),
        parts=_if(lambda experiment: "classifier" in needs.feature_spaces(experiment)),
        inputs=lambda experiment, part: [*PIXELS],
        resources=NETWORK,
    ),
    Stage(
        "reference",
        opens_data=True,
        reads=("data", "evaluate.features"),
        parts=needs.feature_spaces,
        inputs=lambda experiment, part: [
            *([] if needs.published_reference(experiment) else PIXELS),
            *("classifier/all", "fetch_features/all", "fetch_reference/all"),
        ],
        chosen=needs.reference_modules,
        resources=NETWORK,
    ),
    Stage(
        "selection",
        reads=(
            *_NETWORK,
            *("head", "train.selection", "train.heads"),
            *("sample.clip", "sample.guidance", "sample.execution", "evaluate.features"),
        ),
        parts=needs.selection_parts,
        inputs=needs.selection_inputs,
        methods=needs.with_heads,
        chosen=lambda experiment, part: [
            *needs.page_space_module(experiment, part),
            *needs.latent_module(experiment, part),
        ],
        shared=True,
        resources=LONG,
        priority=_all_timesteps,
    ),
    Stage(
        "chains",
        reads=(*_NETWORK, "head", "sample.clip", "evaluate.chains"),
        parts=needs.chain_parts,
        inputs=lambda experiment, part: [
            *needs.encode_tasks(experiment),
            *needs.model_tasks(experiment, part, needs.chain_methods(experiment, part)),
        ],
        methods=needs.chain_methods,
        resources=NETWORK,
    ),
    Stage(
        "sample",
        reads=(*_NETWORK, "head", "sample"),
        parts=lambda experiment: list(parts(experiment)),
        inputs=needs.sample_inputs,
        methods=needs.sampled_methods,
        chosen=needs.sampler_modules,
        shared=True,
        resources=LONG,
        priority=_longest_chain,
    ),
    Stage(
        "evaluate_images",
        reads=("data", "encode.latent", "network.scores", "sample", "evaluate.features"),
        parts=lambda experiment: list(parts(experiment)) if experiment.evaluate.features else [],
        inputs=_judged,
        chosen=_judging,
        resources=NETWORK,
    ),
    Stage(
        "evaluate_jackknife",
        reads=(
            *("data", "encode.latent", "network.scores", "sample"),
            *("evaluate.features", "evaluate.jackknife"),
        ),
        parts=lambda experiment: list(parts(experiment)) if experiment.evaluate.jackknife else [],
        inputs=_judged,
        chosen=_judging,
        resources=NETWORK,
    ),
    Stage(
        "evaluate_points",
        reads=("data", "network.scores", "sample", "evaluate.mmd"),
        parts=_if(lambda experiment: experiment.evaluate.mmd is not None),
        inputs=lambda experiment, part: [
            *needs.encode_tasks(experiment),
            *needs.sample_tasks(experiment),
        ],
    ),
    Stage(
        "evaluate_covariance",
        reads=(*_NETWORK, "head", "sample.samplers", "evaluate.covariance_error"),
        parts=_if(lambda experiment: experiment.evaluate.covariance_error is not None),
        inputs=lambda experiment, part: [
            *needs.encode_tasks(experiment),
            *needs.all_model_tasks(experiment, needs.ddpm_methods(experiment, part)),
        ],
        methods=needs.ddpm_methods,
        resources=NETWORK,
    ),
    Stage(
        "evaluate_likelihood",
        reads=(*_NETWORK, "head", "sample.clip", "evaluate.likelihood"),
        parts=_if(lambda experiment: experiment.evaluate.likelihood is not None),
        inputs=lambda experiment, part: [
            *needs.encode_tasks(experiment),
            *needs.all_model_tasks(experiment, needs.likelihood_methods(experiment, part)),
            *needs.chain_tasks(experiment, needs.likelihood_chains(experiment)),
        ],
        methods=needs.likelihood_methods,
        shared=True,
        resources=LONG,
        priority=_all_timesteps,
    ),
    Stage(
        "evaluate_loss",
        reads=(*_NETWORK, "evaluate.loss"),
        parts=_if(lambda experiment: experiment.evaluate.loss is not None),
        inputs=lambda experiment, part: [
            *needs.encode_tasks(experiment),
            *needs.all_model_tasks(experiment, ()),
        ],
        resources=NETWORK,
    ),
    Stage(
        "evaluate_deviation",
        reads=(*_NETWORK, "head", "evaluate.deviation"),
        parts=_if(lambda experiment: experiment.evaluate.deviation is not None),
        inputs=lambda experiment, part: [
            *needs.encode_tasks(experiment),
            *needs.all_model_tasks(experiment, needs.with_heads(experiment, part)),
        ],
        methods=needs.with_heads,
        resources=NETWORK,
    ),
    Stage(
        "evaluate_cost",
        reads=(*_NETWORK, "head", "evaluate.cost"),
        parts=_if(lambda experiment: experiment.evaluate.cost is not None),
        inputs=lambda experiment, part: needs.all_model_tasks(experiment, experiment.methods),
        methods=needs.every_method,
        resources=NETWORK,
    ),
    Stage(
        "report",
        opens_data=True,
        reads=(
            "data",
            "encode",
            "schedule",
            "network",
            "methods",
            "head",
            "train",
            "sample",
            "evaluate",
            "report",
        ),
        inputs=lambda experiment, part: [
            *(f"evaluate_{of}/{p}" for of in ("images", "jackknife") for p in parts(experiment)),
            *(f"evaluate_{of}/all" for of in EVALUATIONS),
            *(f"chains/{score}" for score in needs.chain_parts(experiment)),
            *needs.sample_tasks(experiment),
            *needs.encode_tasks(experiment),
            *VAE,
            *needs.reference_tasks(experiment),
            "classifier/all",
            *needs.kept_heads(experiment),
            *needs.all_model_tasks(experiment, experiment.methods),
        ],
        chosen=lambda experiment, part: [
            *needs.page_module(experiment, part),
            *needs.latent_module(experiment, part),
        ],
        files=("reports/paper/results.csv",),
        local=True,
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
    asked = dict.fromkeys(BY_NAME[task.stage].inputs(experiment, task.part))
    return [present[name] for name in asked if name in present]


def ancestry(experiment: Experiment, wanted: Collection[Task]) -> list[Task]:
    """The wanted tasks and all that they rest on, inputs first."""
    order, needed = tasks(experiment), set(wanted)
    for task in reversed(order):
        if task in needed:
            needed.update(inputs(experiment, task))
    return [task for task in order if task in needed]


def outside(experiment: Experiment, task: Task) -> list[str]:
    """Files and folders of the user's that a task reads; what is in them decides what it makes."""
    return BY_NAME[task.stage].outside(experiment)


def after(experiment: Experiment, task: Task) -> list[Task]:
    """What a task waits for without reading it."""
    return [node for node in tasks(experiment) if node.stage in BY_NAME[task.stage].after]


def reads(experiment: Experiment, task: Task) -> list[str]:
    stage = BY_NAME[task.stage]
    return [*stage.reads, *(f"methods.{label}" for label in stage.methods(experiment, task.part))]


def modules(experiment: Experiment, task: Task) -> list[str]:
    """Where the code of a task begins: its own module, and those that its parameters choose."""
    stage = BY_NAME[task.stage]
    kinds = {experiment.methods[label].kind for label in stage.methods(experiment, task.part)}
    chosen = [f"ocm_core.covariance.{kind}" for kind in sorted(kinds)]
    if stage.opens_data:
        chosen.append(f"ocm_core.datasets.{experiment.data.kind}")
    if "network" in stage.reads:
        chosen += sorted({_network(experiment, score) for score in _scores(experiment, task)})
        chosen += needs.network_modules(experiment)
    if "schedule" in stage.reads:
        chosen += needs.schedule_module(experiment)
    chosen += stage.chosen(experiment, task.part)
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
    written = {kind: f"{base}.{kind}.json" for kind in ("metrics", "provenance")}
    return {"html": f"{base}.html", **written, **data}


def plots(experiment: Experiment) -> dict[str, tuple[str, Collection[str]]]:
    """The report's plot data: name of the CSV file, its x column, and a y column per method."""
    evaluate = experiment.evaluate
    stepwise = needs.ddpm_methods(experiment, "all")
    data: dict[str, tuple[str, Collection[str]]] = {}
    for score in experiment.network.scores:
        if evaluate.covariance_error:
            data[f"covariance_error-{score}"] = ("t", stepwise)
        if evaluate.likelihood:
            data |= {
                f"nll-{name}-{score}": ("steps", evaluate.likelihood.methods)
                for name in evaluate.likelihood.chains
            }
        measures = [*["mmd"] * bool(evaluate.mmd), *["fid", "recall"] * bool(evaluate.features)]
        for label, sampler in experiment.sample.samplers.items():
            data |= {f"{name}-{label}-{score}": ("steps", sampler.methods) for name in measures}
    return data
