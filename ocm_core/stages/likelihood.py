"""Bound the likelihood of test images: all methods, timesteps and nfe in one pass per timestep."""

from collections.abc import Iterator, Mapping
from functools import partial
from itertools import product
from math import sqrt
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
import torch
from pydantic import Field

from ocm_core.covariance import build_all, split
from ocm_core.covariance.interface import Clip
from ocm_core.diffusion import schedule as schedules
from ocm_core.diffusion.denoiser import Denoiser
from ocm_core.diffusion.gaussian import Decoder
from ocm_core.diffusion.timesteps import TimestepsByMethod, build
from ocm_core.distributed import current_rank
from ocm_core.errors import unknown
from ocm_core.likelihood.bound import Likelihood, Methods
from ocm_core.pipeline.artifacts import text_digest
from ocm_core.results.table import Results, Row
from ocm_core.rng.noise import NoiseFor, SampleNoise
from ocm_core.schema.block import BatchSize, Choices, Count, Label, Seed
from ocm_core.schema.combinations import check_timesteps, unknown_methods
from ocm_core.schema.timesteps import (
    DecoderVariance,
    NamedTimesteps,
    OptimalTimesteps,
    TimestepsParams,
)
from ocm_core.stages import Experiment, Job, MadeOf, Params, Stage, Work, _results
from ocm_core.stages._networks import denoiser_facts, evaluating, score_modules
from ocm_core.stages._results import PIECES, load_pieces, save_piece, unfinished
from ocm_core.stages.encode import Encoded, open_split, read_rows
from ocm_core.stages.heads import load_denoiser
from ocm_core.stages.timesteps import optimal_timesteps

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
        params = self.timesteps[rule]
        own = params.decoder_variance if isinstance(params, OptimalTimesteps) else None
        return own or self.decoder_variance

    def groups(self) -> dict[tuple[int, ...], list[str]]:
        """Return the methods that share a pass, by the nfe that it serves."""
        groups: dict[tuple[int, ...], list[str]] = {}
        for label in self.methods:
            groups.setdefault(tuple(self.nfe_by_method.get(label, self.nfe)), []).append(label)
        return {nfe: labels for nfe, labels in groups.items() if nfe}


def _check(experiment: Experiment) -> Iterator[str]:
    where, settings = "evaluate.likelihood", STAGE.settings(experiment)
    yield from unknown_methods(experiment, f"{where}.methods", settings.methods)
    yield from _results.check_test_split(experiment, where)
    for name, rule in settings.timesteps.items():
        yield from check_timesteps(experiment, f"{where}.timesteps.{name}", rule, settings.nfe)
    for label, nfe in settings.nfe_by_method.items():
        if label not in settings.methods:
            yield f"{where}.nfe_by_method: {unknown(label, settings.methods)}"
        if not set(nfe) <= set(settings.nfe):
            yield f"{where}.nfe_by_method.{label}: {nfe}: not all of them are in {where}.nfe"


def _work(experiment: Experiment, part: str) -> Work:
    """Count a pass per image and timestep of the longest rule; probes cost two passes each."""
    settings, passes = STAGE.settings(experiment), 0.0
    for nfe, labels in settings.groups().items():
        probes = sum(experiment.methods[label].products for label in labels)
        visited = min(experiment.schedule.steps, sum(nfe) * len(settings.timesteps))
        passes += visited * (1 + 2 * probes)
    images = settings.images or experiment.data.count_items()["test"]
    return Work(passes * images * len(experiment.network.scores))


STAGE: Stage[LikelihoodParams] = Stage(
    __name__,
    "evaluate",
    params=LikelihoodParams,
    **evaluating(
        "sample.clip",
        methods=lambda e, part: STAGE.settings(e).methods,
        optimal=lambda e: any(r.kind == "optimal" for r in STAGE.settings(e).timesteps.values()),
    ),
    shared=True,
    work=_work,
    check=_check,
)


class Bounds(_results.ResultsTable):
    """Rows of bits per dimension, their terms and their differences between timestep rules."""


class BoundCell(NamedTuple):
    """One bound: which timesteps, of which method, with how many."""

    rule: str
    method: str
    nfe: int


def run(job: Job) -> None:
    """Compute the bounds batch by batch, and write their means over images."""
    experiment, settings = job.experiment, STAGE.settings(job.experiment)
    methods, rank, folder = build_all(experiment.methods), current_rank(), job.folder / PIECES
    stored = len(open_split(job, "test"))
    count = min(settings.images or stored, stored)
    rows: list[Row] = []
    for score in experiment.network.scores:
        optimal = optimal_timesteps(job, score)
        cells = {f"{score}-{'-'.join(map(str, c))}": c for c in _cells(settings, methods, optimal)}
        made_of = partial(_made_of, job, score, optimal)
        if missing := rank.agreed(partial(unfinished, job, folder, cells, made_of)):
            _compute(job, score, optimal, {name: cells[name] for name in missing}, count)
        if rank.is_first:
            bits = [state.tensors["bits"].numpy() for state in load_pieces(folder, cells)]
            first = next(iter(settings.timesteps))
            rows += _rows(score, first, dict(zip(cells.values(), bits, strict=True)))
    if rank.is_first:
        Bounds(job.folder).save(Results(rows))
    job.note(images=count, machine=_results.machine_class(job))


def _made_of(job: Job, score: str, optimal: TimestepsByMethod, cell: BoundCell) -> MadeOf:
    """Return all that a bound depends on, and nothing of others but probes drawn before its own."""
    experiment, settings = job.experiment, STAGE.settings(job.experiment)
    label, schedule = cell.method, schedules.of_experiment(experiment)
    (group,) = (labels for labels in settings.groups().values() if label in labels)
    before = [experiment.methods[other].products for other in group[: group.index(label)]]
    rule = settings.timesteps[cell.rule]
    own = {"images", "batch_size", "seed", "cdf"}
    facts = {
        **denoiser_facts(job, score, label),
        "timesteps": build(rule, schedule, cell.nfe, label, optimal),
        "settings": settings.model_dump(mode="json", include=own),
        "decoder_variance": settings.variance(cell.rule),
        "clip": experiment.sample.clip.model_dump(mode="json"),
        "probes before": sum(before) if experiment.methods[label].products else 0,
        "images": [job.contents(task) for task in job.folders if task.stage == Encoded.stage],
    }
    method = f"ocm_core.covariance.{split(experiment.methods[label].kind)[0]}"
    return MadeOf([__name__, method, *score_modules(experiment, [score])], facts)


def _compute(
    job: Job, score: str, optimal: TimestepsByMethod, cells: Mapping[str, BoundCell], count: int
) -> None:
    """Compute bounds on batches of images, and save one piece of all images for each."""
    settings, wanted = STAGE.settings(job.experiment), list(cells.values())
    denoiser = load_denoiser(job, score, job.experiment.methods)
    run = text_digest(list(cells))[:8]  # batches of other bounds are others
    ranges = _results.batches(count, settings.batch_size)
    named = {f"bits-{run}-{batch.start}": batch for batch in ranges}
    compute = partial(_bits, job, denoiser, optimal, wanted)
    if states := _results.computed(job, named, compute, f"bound with the {score} score"):
        bits = torch.cat([state.tensors["bits"] for state in states], dim=-1)
        for name, values in zip(cells, bits, strict=True):
            save_piece(job.folder / PIECES / f"{name}.safetensors", {"bits": values}, None)
    current_rank().wait()


def _cells(
    settings: LikelihoodParams, methods: Methods, optimal: TimestepsByMethod
) -> Iterator[BoundCell]:
    """Yield every bound that exists: optimal timesteps are those of some methods and nfe."""
    for rule, method, nfe in product(settings.timesteps, methods, settings.nfe):
        params = settings.timesteps[rule]
        exists = params.kind != "optimal" or nfe in optimal.get(params.source(method), {})
        if exists and nfe in settings.nfe_by_method.get(method, settings.nfe):
            yield BoundCell(rule, method, nfe)


def _bits(
    job: Job, denoiser: Denoiser, optimal: TimestepsByMethod, cells: list[BoundCell], batch: range
) -> _results.PartialResult:
    """Return bits per dimension over (cell, term, image)."""
    experiment, settings = job.experiment, STAGE.settings(job.experiment)
    limits, methods = experiment.sample.clip, build_all(experiment.methods)
    clip = Clip(x0=limits.x0, c_max=limits.covariance)
    decoder = Decoder(experiment.levels, settings.cdf, settings.decoder_variance)
    x0, label = read_rows(job, "test", batch, denoiser.network.conditional)
    whose = (settings.seed, batch, experiment.shape, job.device)
    bits = np.full((len(cells), len(TERMS), len(batch)), np.nan)
    for labels in settings.groups().values():
        names = {
            (f"{cell.rule} with {cell.nfe} steps", cell.method): cell
            for cell in cells
            if cell.method in labels
        }
        asked = {method for _, method in names}
        probes = {label for label in labels if experiment.methods[label].products}
        asked |= probes if asked & probes else set()  # they draw their probes in turn
        chosen = {label: methods[label] for label in labels if label in asked}
        likelihood = Likelihood(denoiser, chosen, decoder, clip)
        cases = {
            name: build(settings.timesteps[c.rule], denoiser.schedule, c.nfe, c.method, optimal)
            for name, c in names.items()
        }
        bounds, _ = likelihood.bounds_on(
            cases,
            x0,
            lambda t: SampleNoise(*whose, NoiseFor.LIKELIHOOD, t, draws=1),
            label,
            progress=partial(job.progress, description=f"bound for {', '.join(chosen)}"),
            decoders={name: settings.variance(cell.rule) for name, cell in names.items()},
        )
        for name, bound in bounds.items():
            bits[cells.index(names[name])] = bound.bits_per_dim.cpu().numpy()
    return {"bits": torch.from_numpy(bits)}, None


def _rows(score: str, first: str, bits: Mapping[BoundCell, np.ndarray]) -> Iterator[Row]:
    """Yield means over images: of the sum, its terms, and in pairs less that of `first`."""
    total = {cell: terms.sum(axis=0) for cell, terms in bits.items()}
    for cell, terms in bits.items():
        place: Any = {"score": score, "method": cell.method, "timesteps": cell.rule}
        place, values = place | {"nfe": cell.nfe}, total[cell]
        yield Row("bits_per_dim", *_mean(values), **place)
        for term, parts in zip(TERMS, terms, strict=True):
            yield Row(f"bits_per_dim_{term}", float(parts.mean()), **place)
        if cell.rule != first and (same := cell._replace(rule=first)) in total:
            yield Row("bits_per_dim_difference", *_mean(values - total[same]), **place)


def _mean(values: np.ndarray) -> tuple[float, float]:
    """Return the mean over images and its standard error."""
    return float(values.mean()), float(values.std(ddof=1)) / sqrt(len(values))
