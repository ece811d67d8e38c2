"""Train the covariance heads on the frozen score network, all in one pass of it."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, cast

from torch import Tensor

from ocm_core import covariance
from ocm_core.artifacts.heads import HEADS_FILE, kept_file, load_denoiser, new_head
from ocm_core.artifacts.trained import finish_training, save_average, save_networks
from ocm_core.artifacts.training_set import open_training_set
from ocm_core.covariance.learned import LearnedMethod
from ocm_core.diffusion.gaussian import Decoder
from ocm_core.distributed import current_rank
from ocm_core.errors import OcmError
from ocm_core.io.seals import intact, seal
from ocm_core.networks.recomputing import recompute_blocks
from ocm_core.precision import set_precision
from ocm_core.rng.streams import seed_torch
from ocm_core.training.baselines import gaussian_baseline, or_gaussian, target_means
from ocm_core.training.head_fitting import HeadFitting
from ocm_core.training.loop import fit
from ocm_core.training.state import TrainingState, saved_at, state_file

if TYPE_CHECKING:
    from ocm_core.pipeline.job import Job


def run(job: Job) -> None:
    experiment, settings = job.experiment, job.experiment.train.heads
    items = open_training_set(job, settings.batch_size)
    denoiser = load_denoiser(job, job.part)
    denoiser.network.train(settings.trunk_dropout)
    if settings.recompute:
        recompute_blocks(denoiser.network)
    methods = {
        label: cast(LearnedMethod, covariance.build(method.kind, label, **method.options))
        for label, method in experiment.methods.items()
    }
    bare = HeadFitting(
        replace(denoiser, precision=set_precision(settings.precision)),
        methods,
        items.for_network(denoiser.network),
        Decoder(experiment.levels, settings.cdf),
    )
    heads = {}
    for label, baseline in _baselines(job, bare, items.variance).items():
        seed_torch(settings.seed, experiment.methods[label].init or label)
        heads[label] = new_head(experiment, label, denoiser.network, baseline).to(job.device)
    rank = current_rank()
    if rank.is_first:
        _forget_without_kept(job)
    rank.wait()
    state = fit(
        replace(bare, denoiser=replace(bare.denoiser, heads=heads)),
        settings,
        job.state,
        device=job.device,
        progress=lambda steps: job.progress(steps, f"heads on the {job.part} score"),
        after_each=partial(_keep, job),
    )
    if rank.is_first and (lost := _lost(job, settings.iterations)):
        raise OcmError(f"{lost[0]}: lost while heads were trained; run it again")
    finish_training(job.folder, state)
    save_networks(job.folder / HEADS_FILE, heads)
    counts = {label: sum(p.numel() for p in head.parameters()) for label, head in heads.items()}
    job.note(parameters=counts)


def _keep(job: Job, state: TrainingState) -> None:
    """For `selection`, which chooses among them."""
    every = job.experiment.train.heads.keep_every
    if every and state.iteration % every == 0:
        file = kept_file(job.folder, state.iteration)
        save_average(file, state)
        if current_rank().is_first:
            seal(file)


def _forget_without_kept(job: Job) -> None:
    """A run that goes on from its state does not make again what it kept before: that is needed."""
    if lost := _lost(job, saved_at(job.state) or 0):
        job.log.warning("%s: lost or damaged since it was kept; training starts anew", lost[0])
        state_file(job.state).unlink()


def _lost(job: Job, iterations: int) -> list[Path]:
    """What should have been kept in so many iterations, and is not there as it was."""
    every = job.experiment.train.heads.keep_every or iterations + 1
    kept = (kept_file(job.folder, n) for n in range(every, iterations + 1, every))
    return [file for file in kept if not intact(file)]


def _baselines(job: Job, fitting: HeadFitting, variance: float) -> dict[str, Tensor | None]:
    """c̄_t by method, as its form says; None where there is none."""
    experiment, settings = job.experiment, job.experiment.train.heads
    kinds = {label: experiment.head.form(m).baseline for label, m in experiment.methods.items()}
    by_target, by_moments, by_gaussian = (
        {label: fitting.methods[label] for label in kinds if kinds[label] == kind}
        for kind in ("target", "moments", "gaussian")
    )
    micro_batch = settings.batch_size // settings.accumulate
    estimates = target_means(
        replace(fitting, methods=by_target), settings.seed, micro_batch, job.device
    )
    moments, schedule = fitting.denoiser.moments, fitting.denoiser.schedule
    if by_moments and moments is None:
        raise OcmError("head.baseline: 'moments' needs the stage `moments`, and it is no input")
    if moments is not None:
        estimates |= dict.fromkeys(by_moments, moments)
    replaced = [int((table[1:] <= 0).sum()) for table in estimates.values()]
    job.note(baseline_entries_from_gaussian=max(replaced, default=0))
    gaussian = gaussian_baseline(schedule, variance)
    return {
        **dict.fromkeys(kinds),
        **dict.fromkeys(by_gaussian, gaussian),
        **{label: or_gaussian(table, gaussian) for label, table in estimates.items()},
    }
