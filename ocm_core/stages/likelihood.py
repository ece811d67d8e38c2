"""Bound the likelihood of test images: all methods, timesteps and nfe in one pass per timestep."""

from collections.abc import Iterator, Mapping
from functools import partial
from itertools import product
from typing import Annotated, Any, Literal, NamedTuple

import torch
from numpy import ndarray
from pydantic import Field

from ocm_core.diffusion.gaussian import Decoder
from ocm_core.distributed import current_rank
from ocm_core.errors import unknown
from ocm_core.likelihood.bound import Likelihood
from ocm_core.metrics import mean_and_error
from ocm_core.pipeline.artifacts import text_digest
from ocm_core.pipeline.pieces import (
    PIECES,
    PartialResult,
    computed,
    load_pieces,
    save_piece,
    unfinished,
)
from ocm_core.results.table import Row
from ocm_core.rng.batches import batches
from ocm_core.rng.noise import NoiseFor, SampleNoise
from ocm_core.schema.block import BatchSize, Choices, Count, Label, Seed
from ocm_core.schema.combinations import check_timesteps
from ocm_core.schema.timesteps import (
    DecoderVariance,
    NamedTimesteps,
    OptimalTimesteps,
    TimestepsParams,
)
from ocm_core.stages import Experiment, Job, MadeOf, Params
from ocm_core.stages._evaluation import EvaluatedModel, evaluated, evaluation
from ocm_core.stages._networks import made_with
from ocm_core.stages._results import ResultsTable, machine_class
from ocm_core.stages.encode import Encoded, count_images

TERMS = ("decoder", "steps", "prior")
_Rules = Annotated[dict[Label, TimestepsParams], Field(min_length=1)]  # the first is the page's


class LikelihoodParams(Params):
    """The bound on the test set, in bits per dimension: all methods, rules and nfe in one pass."""

    methods: Choices[str]  # those that are defined for DDPM
    timesteps: _Rules = {"even": NamedTimesteps(), "optimal": OptimalTimesteps()}
    nfe: Choices[Count]
    nfe_by_method: dict[str, list[Count]] = {}  # instead of `nfe`, for methods that cost too much
    images: Count | None = None  # null: the whole test set
    batch_size: BatchSize
    seed: Seed = 4
    cdf: Literal["exact", "tanh"] = "exact"
    decoder_variance: DecoderVariance = "fixed"  # where a rule does not say it

    def variance(self, rule: str) -> DecoderVariance:
        """Return the variance of the decoder in a rule's bounds."""
        return getattr(self.timesteps[rule], "decoder_variance", None) or self.decoder_variance

    def groups(self) -> dict[tuple[int, ...], list[str]]:
        """Return the methods that share a pass, by the nfe that it serves."""
        groups: dict[tuple[int, ...], list[str]] = {}
        for label in self.methods:
            groups.setdefault(tuple(self.nfe_by_method.get(label, self.nfe)), []).append(label)
        return {nfe: labels for nfe, labels in groups.items() if nfe}


def _check(experiment: Experiment, settings: LikelihoodParams) -> Iterator[str]:
    where = "evaluate.likelihood"
    for name, rule in settings.timesteps.items():
        yield from check_timesteps(experiment, f"{where}.timesteps.{name}", rule, settings.nfe)
    for label, nfe in settings.nfe_by_method.items():
        if label not in settings.methods:
            yield f"{where}.nfe_by_method: {unknown(label, settings.methods)}"
        if not set(nfe) <= set(settings.nfe):
            yield f"{where}.nfe_by_method.{label}: {nfe}: not all of them are in {where}.nfe"


def _passes(experiment: Experiment, settings: LikelihoodParams) -> float:
    """Count a pass per timestep of the longest rule; probes cost two passes each."""
    passes = 0.0
    for nfe, labels in settings.groups().items():
        probes = sum(experiment.methods[label].products for label in labels)
        visited = min(experiment.schedule.steps, sum(nfe) * len(settings.timesteps))
        passes += visited * (1 + 2 * probes)
    return passes


STAGE = evaluation(
    __name__, LikelihoodParams, "sample.clip", shared=True, passes=_passes, check=_check
)


class Bounds(ResultsTable):
    """Rows of bits per dimension, their terms and their differences between timestep rules."""


class BoundCell(NamedTuple):
    """One bound: which timesteps, of which method, with how many."""

    rule: str
    method: str
    nfe: int


def run(job: Job) -> None:
    """Compute the bounds batch by batch, and write their means over images."""
    settings, rank, folder = STAGE.settings(job.experiment), current_rank(), job.folder / PIECES
    count, first = count_images(job, settings.images), next(iter(settings.timesteps))
    rows = list[Row]()
    for model in evaluated(job):
        cells = {f"{model.score}-{'-'.join(map(str, c))}": c for c in _cells(settings, model)}
        made_of = partial(_made_of, model)
        if missing := rank.agreed(partial(unfinished, job, folder, cells, made_of)):
            _compute(model, {name: cells[name] for name in missing}, count)
        if rank.is_first:
            bits = [state.tensors["bits"].numpy() for state in load_pieces(folder, cells)]
            rows += _rows(model.score, first, dict(zip(cells.values(), bits, strict=True)))
    if rank.is_first:
        Bounds(job.folder).save(rows)
    job.note(images=count, machine=machine_class(job))


def _made_of(model: EvaluatedModel, cell: BoundCell) -> MadeOf:
    """Return all that a bound depends on, and nothing of others but probes drawn before its own."""
    job, label, experiment = model.job, cell.method, model.job.experiment
    settings = STAGE.settings(experiment)
    (group,) = (labels for labels in settings.groups().values() if label in labels)
    before = [experiment.methods[other].products for other in group[: group.index(label)]]
    own = {"images", "batch_size", "seed", "cdf"}
    facts = {
        "timesteps": model.timesteps(settings.timesteps[cell.rule], label, cell.nfe),
        "settings": settings.model_dump(mode="json", include=own),
        "decoder_variance": settings.variance(cell.rule),
        "clip": experiment.sample.clip.model_dump(mode="json"),
        "probes before": sum(before) if experiment.methods[label].products else 0,
        "images": [job.contents(task) for task in job.folders if task.stage == Encoded.stage],
    }
    return made_with(job, __name__, model.score, label, facts)


def _compute(model: EvaluatedModel, cells: Mapping[str, BoundCell], count: int) -> None:
    """Compute bounds on batches of images, and save one piece of all images for each."""
    job, wanted = model.job, list(cells.values())
    run = text_digest(list(cells))[:8]  # batches of other bounds are others
    ranges = batches(count, STAGE.settings(job.experiment).batch_size)
    named = {f"bits-{run}-{batch.start}": batch for batch in ranges}
    what = f"bound with the {model.score} score"
    if states := computed(job, named, partial(_bits, model, wanted), what):
        bits = torch.cat([state.tensors["bits"] for state in states], dim=-1)
        for name, values in zip(cells, bits, strict=True):
            save_piece(job.folder / PIECES / f"{name}.safetensors", {"bits": values}, None)
    current_rank().wait()


def _cells(settings: LikelihoodParams, model: EvaluatedModel) -> Iterator[BoundCell]:
    """Yield every bound that exists: optimal timesteps are those of some methods and nfe."""
    for rule, method, nfe in product(settings.timesteps, model.methods, settings.nfe):
        params = settings.timesteps[rule]
        exists = params.kind != "optimal" or nfe in model.optimal.get(params.source(method), {})
        if exists and nfe in settings.nfe_by_method.get(method, settings.nfe):
            yield BoundCell(rule, method, nfe)


def _bits(model: EvaluatedModel, cells: list[BoundCell], batch: range) -> PartialResult:
    """Return bits per dimension over (cell, term, image)."""
    job, experiment = model.job, model.job.experiment
    settings, (x0, label) = STAGE.settings(experiment), model.read(batch)
    decoder = Decoder(experiment.levels, settings.cdf, settings.decoder_variance)
    whose = (settings.seed, batch, experiment.shape, job.device, NoiseFor.LIKELIHOOD)
    bits = torch.full((len(cells), len(TERMS), len(batch)), torch.nan, dtype=torch.float64)
    for labels in settings.groups().values():
        mine = [cell for cell in cells if cell.method in labels]
        asked = {cell.method for cell in mine}
        probes = {label for label in labels if experiment.methods[label].products}
        asked |= probes if asked & probes else set()  # they draw their probes in turn
        chosen = {label: model.methods[label] for label in labels if label in asked}
        bounds, _ = Likelihood(model.denoiser, chosen, decoder, model.clip).bounds_on(
            {c: model.timesteps(settings.timesteps[c.rule], c.method, c.nfe) for c in mine},
            x0,
            partial(SampleNoise, *whose, draws=1),
            label,
            progress=partial(job.progress, description=f"bound for {', '.join(chosen)}"),
            decoders={cell: settings.variance(cell.rule) for cell in mine},
        )
        for cell in mine:
            bits[cells.index(cell)] = bounds[cell].bits_per_dim.cpu()
    return {"bits": bits}, None


def _rows(score: str, first: str, bits: Mapping[BoundCell, ndarray]) -> Iterator[Row]:
    """Yield means over images: of the sum, its terms, and in pairs less that of `first`."""
    total = {cell: terms.sum(axis=0) for cell, terms in bits.items()}
    for cell, terms in bits.items():
        place: Any = {"score": score, "method": cell.method, "timesteps": cell.rule}
        place, values = place | {"nfe": cell.nfe}, total[cell]
        yield Row("bits_per_dim", *mean_and_error(values), **place)
        for term, parts in zip(TERMS, terms, strict=True):
            yield Row(f"bits_per_dim_{term}", float(parts.mean()), **place)
        if cell.rule != first and (same := cell._replace(rule=first)) in total:
            yield Row("bits_per_dim_difference", *mean_and_error(values - total[same]), **place)
