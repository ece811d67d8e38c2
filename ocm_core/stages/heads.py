"""Fit the covariance heads to the frozen score network: all are trained, or solved, in one pass."""

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
from ocm_core.rng.streams import seed_torch
from ocm_core.stages import Artifact, Experiment, Inputs, Job, Params, Stage, Task, Work, require
from ocm_core.stages._networks import (
    evaluating,
    frozen,
    load_score,
    methods_with_heads,
    open_training_set,
    train,
)
from ocm_core.stages.moments import moments_of
from ocm_core.stages.spectrum import spectra_of
from ocm_core.training.baselines import gaussian_baseline, or_gaussian, target_means
from ocm_core.training.batches import DroppedLabels
from ocm_core.training.head_fitting import HeadFitting
from ocm_core.training.solving import INTERVALS, HeadSolving, solve
from ocm_core.training.state import TrainingState, save_curve, saved_at, state_file

Fit = Literal["train", "solve"]
FITS: tuple[Fit, ...] = ("train", "solve")


def _work(experiment: Experiment, part: str) -> Work:
    """A pass with a graph, a product with the Jacobian per probe, and the heads themselves."""
    settings, passes = experiment.train.heads, 0.0
    draws = {"train": settings.iterations * settings.batch_size, "solve": settings.solve.draws}
    for how in FITS:
        methods = build_all({k: experiment.methods[k] for k in fitted(experiment, how)}).values()
        probes = max((cast(LearnedMethod, m).training_probes for m in methods), default=0)
        passes += draws[how] * (1.2 + 2.0 * probes) if methods else 0.0
    return Work(passes)


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

    def file(self, label: str) -> Path:
        """Return where the head of one method lies."""
        return self.folder / "heads" / f"{label}.safetensors"

    def kept(self, iteration: int) -> Path:
        """Return where the average of all heads after so many iterations is kept."""
        return self.folder / "kept" / f"{iteration}.safetensors"

    def load(
        self, job: Inputs, network: ScoreNetwork, labels: Iterable[str], after: int | None = None
    ) -> dict[str, CovarianceHead]:
        """Load the heads of these methods, at the end of training or after so many iterations."""
        heads = {}
        for label in labels:
            name = split(label)[0]
            weights = self.weights(name, after)
            head = new_head(job.experiment, label, network)
            form = job.experiment.head.form(job.experiment.methods[label])
            head = CovarianceHead.of_state(head.net, weights, form.link, form.unit)
            heads[name] = frozen(head, job.device)
        return heads

    def weights(self, label: str, iteration: int | None = None) -> dict[str, Tensor]:
        """Load the weights of one method's head."""
        if iteration is None:
            return load_file(self.file(label))
        prefix, kept = f"{label}.", load_file(self.kept(iteration))
        return {k.removeprefix(prefix): v for k, v in kept.items() if k.startswith(prefix)}


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
    """Train all heads, and keep some on the way for `selection`."""
    experiment, settings, rank = job.experiment, job.experiment.train.heads, current_rank()
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
    heads = {}
    for label, baseline in _baselines(job, bare, variance).items():
        seed_torch(settings.seed, experiment.methods[label].init or label)
        heads[label] = new_head(experiment, label, network, baseline).to(job.device)
    fitting = replace(bare, denoiser=replace(bare.denoiser, heads=heads))
    _solve(job, fitting)
    if rank.is_first and (lost := _lost(job, saved_at(job.state) or 0)):
        job.log.warning("%s: lost or damaged since it was kept; training starts anew", lost[0])
        state_file(job.state).unlink()
    rank.wait()

    def keep(state: TrainingState) -> None:
        """Keep the averaged heads now and then, for `selection` to choose among."""
        if settings.keep_every and state.iteration % settings.keep_every == 0:
            file = Heads(job.folder).kept(state.iteration)
            save_networks(file, state.networks, state.average)
            if rank.is_first:
                record_checksum(file)

    trained = {label: fitting.methods[label] for label in fitted(experiment, "train")}
    if trained:
        objective = replace(fitting, methods=trained)
        train(job, objective, settings, f"heads on the {job.part} score", keep)
        if rank.is_first and (lost := _lost(job, settings.iterations)):
            raise OcmError(f"{lost[0]}: lost while heads were trained; run it again")
    elif rank.is_first:
        save_curve(job.folder, [])
    for label, head in heads.items():
        save_networks(Heads(job.folder).file(label), {"": head})
    job.note(parameters={k: sum(p.numel() for p in head.parameters()) for k, head in heads.items()})


def _solve(job: Job, fitting: HeadFitting) -> None:
    """Solve for the last layers of the heads that say so."""
    settings, labels = job.experiment.train.heads, fitted(job.experiment, "solve")
    if not labels:
        return
    solved = replace(fitting, methods={label: fitting.methods[label] for label in labels})
    means = target_means(solved, settings.seed, settings.solve.batch_size, job.device)
    progress = partial(job.progress, description=f"normal equations on the {job.part} score")
    system = HeadSolving(solved, settings.solve, job.device)
    solve(system, job.state, means, progress=progress, rank=current_rank())


def _lost(job: Job, iterations: int) -> list[Path]:
    """Return the files that so many iterations should have kept, and that are not intact."""
    every = job.experiment.train.heads.keep_every or iterations + 1
    kept = (Heads(job.folder).kept(n) for n in range(every, iterations + 1, every))
    return [file for file in kept if not is_intact(file)]


def _baselines(job: Job, bare: HeadFitting, variance: float) -> dict[str, Tensor | None]:
    """Return c̄_t by method, as its form says; None where there is none."""
    experiment, settings = job.experiment, job.experiment.train.heads
    kinds = {label: experiment.head.form(m).baseline for label, m in experiment.methods.items()}
    targets = replace(bare, methods={k: m for k, m in bare.methods.items() if kinds[k] == "target"})
    rows = settings.batch_size // settings.accumulate
    estimates = target_means(targets, settings.seed, rows, job.device)
    by_moments = [label for label, kind in kinds.items() if kind == "moments"]
    estimates |= {label: require(bare.denoiser.moments) for label in by_moments}
    replaced = [int((table[1:] <= 0).sum()) for table in estimates.values()]
    job.note(baseline_entries_from_gaussian=max(replaced, default=0))
    gaussian = gaussian_baseline(bare.denoiser.schedule, variance)
    return {
        **{label: gaussian if kind == "gaussian" else None for label, kind in kinds.items()},
        **{label: or_gaussian(table, gaussian) for label, table in estimates.items()},
    }
