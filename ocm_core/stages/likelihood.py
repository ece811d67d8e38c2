"""Bound the likelihood of test images: all methods, timesteps and nfe from one pass per timestep.

Processes share the batches of images.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import product
from math import sqrt
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

from pydantic import Field

from ocm_core.errors import OcmError, unknown
from ocm_core.pipeline.stage import Stage, Task, Work
from ocm_core.results.table import Results, Row
from ocm_core.schema.block import BatchSize, Choices, Count, Label, Params, Seed
from ocm_core.schema.combinations import check_optimal, check_timesteps, unknown_methods
from ocm_core.schema.timesteps import EvenTimesteps, OptimalTimesteps, TimestepsParams
from ocm_core.stages._networks import MODEL_KEYS, family_modules
from ocm_core.stages._results import ResultsTable, machine_class
from ocm_core.stages.encode import encode_tasks, open_split, read_rows
from ocm_core.stages.sample import optimal_tasks
from ocm_core.stages.timesteps import optimal_timesteps

if TYPE_CHECKING:
    from pathlib import Path

    from numpy import ndarray
    from torch import Tensor

    from ocm_core.diffusion.denoiser import Denoiser
    from ocm_core.diffusion.timesteps import Timesteps, TimestepsByMethod
    from ocm_core.likelihood.bound import Bound, Methods
    from ocm_core.pipeline.job import Job
    from ocm_core.schema.experiment import Experiment

TERMS = ("decoder", "steps", "prior")


class LikelihoodParams(Params):
    """The bound on the test set, in bits per dimension: all methods, rules and nfe in one pass.

    A method has optimal timesteps if `train.timesteps` names it, for nfe up to its points.
    """

    methods: Choices[str]  # those that are defined for DDPM
    timesteps: Annotated[  # by name; the first is the page's
        dict[Label, TimestepsParams], Field(min_length=1)
    ] = {"even": EvenTimesteps(), "optimal": OptimalTimesteps()}
    nfe: Choices[Count]
    nfe_by_method: dict[str, list[Count]] = {}  # instead of `nfe`, for methods that cost too much
    images: Count | None = None  # null: the whole test set
    batch_size: BatchSize
    seed: Seed = 4
    cdf: Literal["exact", "tanh"] = "exact"
    decoder_variance: Literal["fixed", "method"] = "fixed"

    def groups(self) -> dict[tuple[int, ...], list[str]]:
        """Return the methods that share a pass, by the nfe that it serves."""
        groups: dict[tuple[int, ...], list[str]] = {}
        for label in self.methods:
            groups.setdefault(tuple(self.nfe_by_method.get(label, self.nfe)), []).append(label)
        return {nfe: labels for nfe, labels in groups.items() if nfe}


def _methods(experiment: Experiment, part: str) -> list[str]:
    return list(STAGE.settings(experiment).methods)


def _takes(experiment: Experiment, part: str) -> list[Task]:
    from ocm_core.stages._denoiser import denoiser_tasks

    rules = STAGE.settings(experiment).timesteps.values()
    return [
        *encode_tasks(experiment),
        *denoiser_tasks(experiment, _methods(experiment, part)),
        *optimal_tasks(rules, experiment.network.scores),
    ]


def _check(experiment: Experiment) -> Iterator[str]:
    where, settings = "evaluate.likelihood", STAGE.settings(experiment)
    yield from unknown_methods(experiment, f"{where}.methods", settings.methods)
    if "test" not in experiment.data.count_items():
        yield f"{where}: measured on test images, and the data have none; use null"
    for name, rule in settings.timesteps.items():
        yield from check_timesteps(experiment, f"{where}.timesteps.{name}", rule, settings.nfe)
        if isinstance(rule, OptimalTimesteps):
            methods = [rule.of] if rule.of else []
            yield from check_optimal(experiment, f"{where}.timesteps.{name}", methods)
    for label, nfe in settings.nfe_by_method.items():
        if label not in settings.methods:
            yield f"{where}.nfe_by_method: {unknown(label, settings.methods)}"
        if not set(nfe) <= set(settings.nfe):
            yield f"{where}.nfe_by_method.{label}: {nfe}: not all of them are in {where}.nfe"


def _work(experiment: Experiment, part: str) -> Work:
    """Count a pass per image and timestep of the longest rule; probes cost two passes each."""
    settings, passes = STAGE.settings(experiment), 0.0
    for nfe, labels in settings.groups().items():
        methods = [experiment.methods[label] for label in labels]
        probes = sum(int(m.options.get("probes", 0)) for m in methods if m.needs == "nothing")
        visited = min(experiment.schedule.steps, sum(nfe) * len(settings.timesteps))
        passes += visited * (1 + 2 * probes)
    images = settings.images or sum(experiment.data.count_items().values())
    return Work(passes * images * len(experiment.network.scores))


STAGE = Stage(
    __name__,
    "evaluate",
    params=LikelihoodParams,
    takes=_takes,
    reads=(*MODEL_KEYS, "head", "sample.clip", "train.selection"),
    methods=_methods,
    plugins=lambda experiment, part: family_modules(experiment),
    shared=True,
    gpu=True,
    memory=16_000,
    work=_work,
    check=_check,
)


class Bounds(ResultsTable):
    """Rows of bits per dimension, their terms and their differences between timestep rules."""


class BoundCell(NamedTuple):
    """One bound: which timesteps, of which method, with how many."""

    rule: str
    method: str
    nfe: int


def run(job: Job) -> None:
    import numpy as np

    from ocm_core.covariance import build_all
    from ocm_core.distributed import current_rank
    from ocm_core.stages._denoiser import load_denoiser

    experiment, settings = job.experiment, STAGE.settings(job.experiment)
    methods = build_all(experiment.methods)
    stored = open_split(job, "test")
    count = min(settings.images or len(stored), len(stored))
    batches = [
        range(first, min(first + settings.batch_size, count))
        for first in range(0, count, settings.batch_size)
    ]
    rank, rows = current_rank(), []
    for score in experiment.network.scores:
        optimal = optimal_timesteps(job, score)
        bounds = ScoreBounds(job, score, load_denoiser(job, score, methods), methods, optimal)
        missing = rank.agreed(partial(bounds.missing, batches))
        for batch in rank.mine(missing):
            bounds.compute(batch)
        rank.wait()
        if rank.is_first:
            bits = np.concatenate([bounds.load(batch) for batch in batches], axis=-1)
            rows += list(bounds.rows(bits))
    if rank.is_first:
        Bounds(job.folder).save(Results(rows))
    job.note(images=count, machine=machine_class(job))


@dataclass(frozen=True)
class ScoreBounds:
    """One score's bits per dimension, over (cell, term, image)."""

    job: Job
    score: str
    denoiser: Denoiser
    methods: Methods
    optimal: TimestepsByMethod

    @property
    def settings(self) -> LikelihoodParams:
        return STAGE.settings(self.job.experiment)

    @property
    def cells(self) -> list[BoundCell]:
        """Every bound that exists, in the order of the parameters."""
        return [
            BoundCell(rule, method, nfe)
            for rule, method, nfe in product(
                self.settings.timesteps, self.methods, self.settings.nfe
            )
            if nfe in self.settings.nfe_by_method.get(method, self.settings.nfe)
            and self._exists(rule, method, nfe)
        ]

    def missing(self, batches: list[range]) -> list[range]:
        """Return the batches that no run has finished before it was interrupted."""
        from ocm_core.io.state_file import load_state

        return [batch for batch in batches if load_state(self._file(batch)) is None]

    def compute(self, batch: range) -> None:
        import torch

        from ocm_core.io.state_file import save_state

        save_state(self._file(batch), {"bits": torch.from_numpy(self._bits(batch))}, None)

    def load(self, batch: range) -> ndarray:
        """Load the bits of these images, once some process has computed them."""
        from ocm_core.io.state_file import load_state

        computed = load_state(self._file(batch))
        if computed is None:
            raise OcmError(f"{self._file(batch)}: lost while others were computed; run it again")
        return computed.tensors["bits"].numpy()

    def rows(self, bits: ndarray) -> Iterator[Row]:
        """Yield means over images with their errors: of the sum, its terms, and its differences.

        All rules see the same images with the same noise, so that a bound less that of the first
        rule is known better than either.
        """
        total = dict(zip(self.cells, bits.sum(axis=1), strict=True))
        first = next(iter(self.settings.timesteps))
        for cell, terms in zip(self.cells, bits, strict=True):
            place: dict[str, Any] = {
                "score": self.score,
                "method": cell.method,
                "timesteps": cell.rule,
                "nfe": cell.nfe,
            }
            values = total[cell]
            yield Row("bits_per_dim", *_mean(values), **place)
            for term, parts in zip(TERMS, terms, strict=True):
                yield Row(f"bits_per_dim_{term}", float(parts.mean()), **place)
            if cell.rule != first and (same := cell._replace(rule=first)) in total:
                yield Row("bits_per_dim_difference", *_mean(values - total[same]), **place)

    def _file(self, batch: range) -> Path:
        return self.job.state / f"bits-{self.score}-{batch.start}.safetensors"

    def _bits(self, batch: range) -> ndarray:
        import numpy as np

        x0, label = read_rows(self.job, "test", batch, self.denoiser.network.conditional)
        bits = np.full((len(self.cells), len(TERMS), len(batch)), np.nan)
        for nfe, methods in self.settings.groups().items():
            group = [c for c in self.cells if c.method in methods and c.nfe in nfe]
            for cell, bound in self._bounds(methods, group, batch, x0, label):
                bits[self.cells.index(cell)] = bound.bits_per_dim.cpu().numpy()
        return bits

    def _exists(self, rule: str, method: str, nfe: int) -> bool:
        """Whether there are such timesteps; optimal ones are those of some methods and nfe."""
        params = self.settings.timesteps[rule]
        if params.kind != "optimal":
            return True
        return nfe in self.optimal.get(params.of or method, {})

    def _bounds(
        self,
        labels: list[str],
        cells: list[BoundCell],
        batch: range,
        x0: Tensor,
        label: Tensor | None,
    ) -> Iterator[tuple[BoundCell, Bound]]:
        from ocm_core.covariance.interface import Clip
        from ocm_core.diffusion.gaussian import Decoder
        from ocm_core.likelihood.bound import Likelihood
        from ocm_core.rng.noise import NoiseFor, SampleNoise

        experiment, device = self.job.experiment, self.job.device
        settings, limits = self.settings, experiment.sample.clip
        likelihood = Likelihood(
            self.denoiser,
            {name: self.methods[name] for name in labels},
            Decoder(experiment.levels, settings.cdf, settings.decoder_variance),
            Clip(x0=limits.x0, c_max=limits.covariance),
        )
        names = {(f"{cell.rule} with {cell.nfe} steps", cell.method): cell for cell in cells}
        bounds, _ = likelihood.bounds_on(
            {name: self._timesteps(cell) for name, cell in names.items()},
            x0,
            lambda t: SampleNoise(
                settings.seed, batch, experiment.shape, device, NoiseFor.LIKELIHOOD, t, draws=1
            ),
            label,
            progress=lambda times: self.job.progress(times, f"bound for {', '.join(labels)}"),
        )
        for name, bound in bounds.items():
            yield names[name], bound

    def _timesteps(self, cell: BoundCell) -> Timesteps:
        from ocm_core.diffusion.timesteps import build

        params = self.settings.timesteps[cell.rule]
        return build(params, self.denoiser.schedule, cell.nfe, cell.method, self.optimal)


def _mean(values: ndarray) -> tuple[float, float]:
    """Return the mean over images and its standard error."""
    return float(values.mean()), float(values.std(ddof=1)) / sqrt(len(values))
