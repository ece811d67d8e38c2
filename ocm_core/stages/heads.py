"""Fit new covariance heads to the frozen score network: all are trained, or solved, in one pass."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from math import prod
from pathlib import Path
from typing import Any, Literal, cast

from safetensors.torch import load_file
from torch import Tensor

from ocm_core.covariance import build_all, class_of, split
from ocm_core.covariance.learned import CovarianceHead, LearnedMethod, RegressionMethod
from ocm_core.diffusion.denoiser import Denoiser
from ocm_core.diffusion.gaussian import Decoder
from ocm_core.diffusion.score_network import ScoreNetwork
from ocm_core.distributed import current_rank
from ocm_core.errors import OcmError
from ocm_core.io.checksums import is_intact, record_checksum
from ocm_core.networks import enable_gradient_checkpointing, save_networks
from ocm_core.precision import set_precision
from ocm_core.progress import Progress
from ocm_core.rng.streams import seed_torch
from ocm_core.stages import (
    Artifact,
    Experiment,
    Inputs,
    Job,
    MadeOf,
    Params,
    Stage,
    Task,
    Work,
)
from ocm_core.stages._networks import (
    evaluating,
    load_score,
    made_with,
    methods_with_heads,
    open_training_set,
    train,
)
from ocm_core.stages.moments import moments_of
from ocm_core.stages.spectrum import spectra_of
from ocm_core.training.baselines import DRAWS, baselines, target_means, timesteps
from ocm_core.training.batches import DroppedLabels
from ocm_core.training.head_fitting import HeadFitting
from ocm_core.training.solving import INTERVALS, HeadSolving, solve
from ocm_core.training.state import (
    CURVE_FILE,
    Curve,
    TrainingState,
    joined_curves,
    load_curve,
    save_curve,
    saved_at,
    state_file,
)

Fit = Literal["train", "solve"]


def _work(experiment: Experiment, part: str) -> Work:
    """A pass with a graph, a product with the Jacobian per probe, and the heads themselves."""
    settings, passes = experiment.train.heads, 0.0
    means = DRAWS * len(timesteps(experiment.schedule.steps))  # of the targets of solved heads
    draws: dict[Fit, int] = {
        "train": settings.iterations * settings.batch_size,
        "solve": settings.solve.draws + means,
    }
    for how in draws:
        methods = build_all({k: experiment.methods[k] for k in fitted(experiment, how)}).values()
        probes = max((cast(LearnedMethod, m).training_probes for m in methods), default=0)
        passes += draws[how] * (1.2 + 2.0 * probes) if methods else 0.0
    return Work(passes, precision=settings.precision)


def fitted(experiment: Experiment, how: Fit) -> list[str]:
    """Return the labels of the heads that are trained, or solved for; some are both.

    A head that is not fitted by least squares is trained whatever the form of all heads.
    """
    found = []
    for label in methods_with_heads(experiment):
        method = experiment.methods[label]
        is_regression = issubclass(class_of(method.kind), RegressionMethod)
        if how in (experiment.head.form(method).fit if is_regression else "train"):
            found.append(label)
    return found


def _check(experiment: Experiment) -> Iterator[str]:
    """Yield what cannot be solved for, or not as it is said."""
    train, solved = experiment.train, fitted(experiment, "solve")
    for label in solved:
        form = experiment.head.form(experiment.methods[label])
        if form.link != "identity":
            yield f"methods.{label}.head.link: {form.link!r} is not linear; use fit: train"
        if experiment.methods[label].spectrum and form.unit != "own":
            yield f"methods.{label}.head.unit: {form.unit!r} is for heads that are trained; use own"
        if train.heads.solve.by_range and form.fit == "solve_train":
            yield f"methods.{label}.head.fit: solutions by range are not trained; use fit: solve"
    for label in methods_with_heads(experiment):
        method = experiment.methods[label]
        if method.spectrum and experiment.head.form(method).baseline != "none":
            yield f"methods.{label}.head.baseline: it is relative to its spectrum; use none"
    for label, method in experiment.methods.items():
        if method.head and method.head.fit != "train" and label not in solved and not method.basis:
            yield f"methods.{label}.head.fit: not a least-squares fit; use fit: train"
    least = 2 * INTERVALS * train.heads.solve.batch_size
    if solved and train.heads.solve.draws < least:
        yield f"train.heads.solve.draws: {train.heads.solve.draws}; expected at least {least}"
    if solved and not fitted(experiment, "train") and train.selection.kind != "last":
        yield "train.selection: chooses among kept heads, and solving keeps none; use kind: last"


STAGE: Stage[Params] = Stage(
    __name__,
    "train",
    parts=lambda e: list(e.network.scores) if methods_with_heads(e) else [],
    **evaluating("head", "train.heads", methods=methods_with_heads, heads=False),
    shared=True,
    work=_work,
    check=_check,
)


class Heads(Artifact):
    """The trained heads of all methods, their loss curve, and those kept for a selection."""

    def file(self, label: str, after: int | None = None) -> Path:
        """Return where the head of one method lies, or its average after so many iterations."""
        folder = "heads" if after is None else f"kept/{after}"
        return self.folder / folder / f"{label}.safetensors"

    def load(
        self, job: Inputs, network: ScoreNetwork, labels: Iterable[str], after: int | None = None
    ) -> dict[str, CovarianceHead]:
        """Load the heads of these methods, at the end of training or after so many iterations."""
        heads = {}
        for label in labels:
            name = split(label)[0]
            weights = load_file(self.file(name, after))
            head = new_head(job.experiment, label, network)
            form = job.experiment.head.form(job.experiment.methods[label])
            head = CovarianceHead.of_state(head.net, weights, form.link, form.unit)
            heads[name] = head.to(job.device).eval().requires_grad_(False)
        return heads


def new_head(
    experiment: Experiment, label: str, network: ScoreNetwork, baseline: Tensor | None = None
) -> CovarianceHead:
    """Return the untrained head of a method."""
    head, form = experiment.head, experiment.head.form(method := experiment.methods[label])
    learned = cast(type[LearnedMethod], class_of(method.kind))
    outputs = {"outputs": prod(experiment.shape)} if learned.pooled else {}
    net = network.make_head(head.kind, **head.sizes, **outputs)
    return CovarianceHead(net, baseline, form.link, form.unit)


def load_denoiser(job: Inputs, score: str, labels: Iterable[str] = ()) -> Denoiser:
    """Load the score network with the heads of `labels`, and spectra and moments if at hand."""
    denoiser, heads, methods = load_score(job, score), {}, job.experiment.methods
    if needing := [label for label in labels if methods[label].needs == "head"]:
        selected = job.folders.get(Task("selection", score))
        artifact = Heads(selected) if selected else job.take(Heads, score)
        heads = artifact.load(job, denoiser.network, needing)
    tables: Any = {"spectra": spectra_of(job, score), "moments": moments_of(job, score)}
    return replace(denoiser, heads=heads, **tables)


def run(job: Job) -> None:
    """Fit the heads that are new, all from the same draws, and take over the others."""
    experiment, settings, rank = job.experiment, job.experiment.train.heads, current_rank()
    taken, curve = rank.agreed(partial(_take_over, job))
    items, variance = open_training_set(job, settings.batch_size)
    denoiser = load_denoiser(job, job.part)
    network = denoiser.network.train(settings.trunk_dropout)
    if settings.recompute:
        enable_gradient_checkpointing(network)
    bare = HeadFitting(
        replace(denoiser, precision=set_precision(settings.precision)),
        cast(dict[str, LearnedMethod], build_all(experiment.methods)),
        DroppedLabels(items, network),
        Decoder(experiment.levels, settings.cdf),
    )
    kinds = {label: experiment.head.form(m).baseline for label, m in experiment.methods.items()}
    rows, shown = settings.batch_size // settings.accumulate, _shown(job, "baselines")
    given = bare, kinds, variance, settings.seed, rows, job.device, shown
    found, from_gaussian = baselines(*given)
    heads = {}
    for label, baseline in found.items():
        seed_torch(settings.seed, experiment.methods[label].init or label)
        heads[label] = new_head(experiment, label, network, baseline).to(job.device)

    def new(how: Fit) -> HeadFitting:
        chosen = {k: bare.methods[k] for k in fitted(experiment, how) if k not in taken}
        return replace(bare, denoiser=replace(bare.denoiser, heads=heads), methods=chosen)

    _solve(job, new("solve"))
    if (trained := new("train")).methods:
        curve = joined_curves(fitted(experiment, "train"), curve, _train(job, trained))
    if rank.is_first:
        save_curve(job.folder, curve)
    for label in heads.keys() - set(taken):
        save_networks(Heads(job.folder).file(label), {"": heads[label]})
    parameters = {k: sum(p.numel() for p in head.parameters()) for k, head in heads.items()}
    job.note(parameters=parameters, baseline_entries_from_gaussian=from_gaussian)


def _take_over(job: Job) -> tuple[list[str], Curve]:
    """Take over heads that were fitted to the same, and return their labels and losses."""
    experiment, folder = job.experiment, job.folder
    taken = []
    for label in methods_with_heads(experiment):
        files = [Heads(folder).file(label), *_kept(job, label, experiment.train.heads.iterations)]
        names = [file.relative_to(folder).as_posix() for file in files]
        if job.reuse(names[0], [*names, CURVE_FILE], _made_of(job, label)):
            taken.append(label)
    return taken, joined_curves(taken, load_curve(folder)) if taken else []


def _made_of(job: Job, label: str) -> MadeOf:
    """Return all that the head of a method depends on, and nothing of other methods."""
    experiment, encoded = job.experiment, {t for t in job.folders if t.stage == "encode"}
    facts = {
        "heads": experiment.head.model_dump(mode="json"),
        "train": experiment.train.heads.model_dump(mode="json"),
        "images": [job.contents(task) for task in sorted(encoded)],
    }
    return made_with(job, __name__, job.part, label, facts, heads=False)


def _train(job: Job, objective: HeadFitting) -> Curve:
    """Train heads to the end, and return their losses; averages are kept now and then."""
    settings, rank, labels = job.experiment.train.heads, current_rank(), list(objective.methods)

    def lost(iteration: int) -> list[Path]:
        kept = (file for label in labels for file in _kept(job, label, iteration))
        return [file for file in kept if not is_intact(file)]

    def keep(state: TrainingState) -> None:
        if settings.keep_every and state.iteration % settings.keep_every == 0:
            for label, head in state.networks.items():
                file = Heads(job.folder).file(label, state.iteration)
                save_networks(file, {"": head}, state.average_of(label))
                if rank.is_first:
                    record_checksum(file)

    if rank.is_first and (files := lost(saved_at(job.state) or 0)):
        job.log.warning("%s: lost or damaged since it was kept; training starts anew", files[0])
        state_file(job.state).unlink()
    rank.wait()
    state = train(job, objective, settings, f"heads on the {job.part} score", keep)
    if rank.is_first and (files := lost(settings.iterations)):
        raise OcmError(f"{files[0]}: lost while heads were trained; run it again")
    return state.curve


def _kept(job: Job, label: str, iterations: int) -> list[Path]:
    """Return the files of a head that so many iterations of training keep."""
    experiment = job.experiment
    every = experiment.train.heads.keep_every if label in fitted(experiment, "train") else None
    numbers = range(every, iterations + 1, every) if every else ()
    return [Heads(job.folder).file(label, n) for n in numbers]


def _solve(job: Job, solved: HeadFitting) -> None:
    """Solve for the last layers of heads."""
    settings = job.experiment.train.heads
    if not solved.methods:
        return
    rows, system = settings.solve.batch_size, HeadSolving(solved, settings.solve, job.device)
    means = target_means(solved, settings.seed, rows, job.device, _shown(job, "means of targets"))
    progress = _shown(job, "normal equations")
    solve(system, job.state, means, progress=progress, rank=current_rank())


def _shown(job: Job, what: str) -> Progress[int]:
    return partial(job.progress, description=f"{what} on the {job.part} score")
