"""The declaration of a stage, `STAGE` of its file, from which the rules of both tools follow."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Generic, Literal, NamedTuple, TypeVar, cast

from ocm_core.schema.block import Params, require

if TYPE_CHECKING:
    from ocm_core.results.measures import Measure
    from ocm_core.schema.experiment import Experiment, PrecisionName

Phase = Literal["fetch", "encode", "train", "sample", "evaluate", "report"]
PHASES: tuple[Phase, ...] = ("fetch", "encode", "train", "sample", "evaluate", "report")
ALL = "all"  # of them
PACKAGE = "ocm_core.stages"
CPUS_PER_GPU = 2  # one thread computes, one draws noise or reads the next batch

Settings = TypeVar("Settings", bound=Params)


class Task(NamedTuple):
    """A node of an experiment's graph: one part of one stage, which makes one artifact."""

    stage: str
    part: str = "all"

    def __str__(self) -> str:
        return f"{self.stage}/{self.part}"


class Work(NamedTuple):
    """Passes of one item through a network; a step of training is three, a Jacobian product two.

    `autoencoder` is encoder and decoder; `spaces` of features, `decoded` a decoder before them.
    """

    passes: float = 0.0
    network: Literal["score", "encoder", "autoencoder", "spaces", "decoded"] = "score"
    precision: PrecisionName = "float32"  # that the network is run in


Names = Callable[["Experiment", str], Iterable[str]]


@dataclass(frozen=True)
class Stage(Generic[Settings]):
    """One step of the pipeline: when an experiment has it, what it takes, reads and costs."""

    module: str  # `__name__` of its file, which names the stage
    phase: Phase
    params: type[Settings] | None = None  # the block `evaluate.NAME`, where it has one
    parts: Callable[[Experiment], Sequence[str]] | None = None  # default: once, if it has its block
    takes: Callable[[Experiment, str], Iterable[Task]] = lambda e, part: ()  # artifacts it reads
    reads: tuple[str, ...] | Names = ()  # dotted keys of further parameters
    methods: Names = lambda e, part: ()  # labels of the covariance methods that it uses
    plugins: Names = lambda e, part: ()  # modules that its parameters choose
    user_files: Callable[[Experiment], Sequence[str]] = lambda e: ()
    after: tuple[str, ...] = ()  # stages that run before it although it reads nothing of theirs
    shared: bool = False  # whether several processes can do one task together
    gpu: bool | Callable[[Experiment], bool] = False
    local: bool = False  # on a cluster, runs where Snakemake itself runs
    work: Callable[[Experiment, str], Work] = lambda e, part: Work()
    check: Callable[[Experiment], Iterable[str]] = lambda e: ()  # what makes no sense together
    measures: tuple[Measure, ...] = ()  # what it adds to the results table

    @property
    def name(self) -> str:
        return self.module.rpartition(".")[2]

    @property
    def about(self) -> str:
        """The first line of its file."""
        return (import_module(self.module).__doc__ or "").partition("\n")[0]

    def parts_of(self, experiment: Experiment) -> list[str]:
        """The parts that this experiment has; none if it does not need the stage."""
        if self.parts is not None:
            return list(self.parts(experiment))
        return ["all"] if self.params is None or self.name in experiment.evaluate else []

    def settings(self, experiment: Experiment) -> Settings:
        """Return the stage's own block of parameters."""
        return cast(Settings, experiment.evaluate[self.name])

    def keys(self, experiment: Experiment, part: str) -> list[str]:
        """Return every dotted parameter key that a task reads."""
        own = [f"evaluate.{self.name}"] if self.params else []
        reads = self.reads if isinstance(self.reads, tuple) else self.reads(experiment, part)
        return [*own, *reads, *(f"methods.{label}" for label in self.methods(experiment, part))]

    @property
    def memory(self) -> int:
        """MB of the host that a task asks for."""
        return 16_000 if self.gpu else 4_000

    def computes_on_gpu(self, experiment: Experiment) -> bool:
        return self.gpu if isinstance(self.gpu, bool) else self.gpu(experiment)

    def gpus(self, experiment: Experiment, per_job: int) -> int:
        """Return how many GPUs a task reserves; only a shared stage uses more than one."""
        return min(per_job, per_job if self.shared else 1) * self.computes_on_gpu(experiment)


def stage_names() -> list[str]:
    """Return the names of all stages, which are those of their files; nothing is imported."""
    places = require(find_spec(PACKAGE)).submodule_search_locations
    return [info.name for info in iter_modules(places) if info.name[0] != "_"]


@cache
def stages() -> Mapping[str, Stage[Params]]:
    """Return every stage by name: by phase, then as `ORDER` lists them, those not listed last."""
    declared = [import_module(f"{PACKAGE}.{name}").STAGE for name in stage_names()]
    order = {name: place for place, name in enumerate(import_module(PACKAGE).ORDER)}
    declared.sort(key=lambda s: (PHASES.index(s.phase), order.get(s.name, len(order)), s.name))
    return {stage.name: stage for stage in declared}
