"""Train the covariance heads on the frozen score network, all in one pass of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, cast

from ocm_core.errors import OcmError
from ocm_core.pipeline.artifacts import Artifact
from ocm_core.pipeline.stage import Stage, Task, Work
from ocm_core.schema.block import Params
from ocm_core.stages._networks import (
    MODEL_KEYS,
    family_modules,
    methods_with_heads,
    needs_moments,
    score_task,
)
from ocm_core.stages.encode import encode_tasks
from ocm_core.stages.moments import MomentsTable

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor

    from ocm_core.covariance.learned import CovarianceHead
    from ocm_core.diffusion.score_network import ScoreNetwork
    from ocm_core.pipeline.job import Job
    from ocm_core.schema.experiment import Experiment
    from ocm_core.training.head_fitting import HeadFitting
    from ocm_core.training.state import TrainingState


def _takes(experiment: Experiment, part: str) -> list[Task]:
    moments = needs_moments(experiment, methods_with_heads(experiment))
    return [
        *encode_tasks(experiment),
        score_task(part),
        *([MomentsTable.task(part)] if moments else []),
    ]


def _work(experiment: Experiment, part: str) -> Work:
    """A pass with a graph, a product with the Jacobian per probe, and the heads themselves."""
    settings = experiment.train.heads
    kinds = (experiment.methods[label] for label in methods_with_heads(experiment))
    probes = max((int(m.options.get("probes", 1)) for m in kinds if m.kind == "ocm"), default=0)
    return Work(settings.iterations * settings.batch_size * (1.2 + 2.0 * probes))


STAGE: Stage[Params] = Stage(
    __name__,
    "train",
    parts=lambda e: list(e.network.scores) if methods_with_heads(e) else [],
    takes=_takes,
    reads=(*MODEL_KEYS, "head", "train.heads"),
    methods=methods_with_heads,
    plugins=lambda experiment, part: family_modules(experiment, [part]),
    shared=True,
    gpu=True,
    memory=16_000,
    work=_work,
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
        self,
        experiment: Experiment,
        network: ScoreNetwork,
        labels: Iterable[str],
        device: str,
        iteration: int | None = None,
    ) -> dict[str, CovarianceHead]:
        """Load the heads of these methods, at the end of training or after so many iterations."""
        return {
            label: _frozen_head(experiment, label, network, self.weights(label, iteration), device)
            for label in labels
        }

    def weights(self, label: str, iteration: int | None = None) -> dict[str, Tensor]:
        """Load the weights of one method's head."""
        from safetensors.torch import load_file

        if iteration is None:
            return load_file(self.file(label))
        prefix, kept = f"{label}.", load_file(self.kept(iteration))
        return {k.removeprefix(prefix): v for k, v in kept.items() if k.startswith(prefix)}


def new_head(
    experiment: Experiment, label: str, network: ScoreNetwork, baseline: Tensor | None
) -> CovarianceHead:
    """Return the untrained head of a method."""
    from ocm_core.covariance.learned import CovarianceHead

    head, form = experiment.head, experiment.head.form(experiment.methods[label])
    net = network.make_head(head.kind, **head.sizes)
    return CovarianceHead(net, baseline, form.link, form.unit)


def _frozen_head(
    experiment: Experiment,
    label: str,
    network: ScoreNetwork,
    weights: Mapping[str, Tensor],
    device: str,
) -> CovarianceHead:
    from ocm_core.stages._training import frozen

    head = new_head(experiment, label, network, weights.get("baseline"))
    head.load_state_dict(weights)
    return frozen(head, device)


def run(job: Job) -> None:
    from ocm_core import covariance
    from ocm_core.covariance.learned import LearnedMethod
    from ocm_core.diffusion.gaussian import Decoder
    from ocm_core.distributed import current_rank
    from ocm_core.networks import enable_gradient_checkpointing
    from ocm_core.precision import set_precision
    from ocm_core.rng.streams import seed_torch
    from ocm_core.stages._denoiser import load_denoiser
    from ocm_core.stages._training import finish_training, open_training_set, save_networks
    from ocm_core.training.head_fitting import HeadFitting
    from ocm_core.training.loop import fit

    experiment, settings = job.experiment, job.experiment.train.heads
    items = open_training_set(job, settings.batch_size)
    denoiser = load_denoiser(job, job.part)
    denoiser.network.train(settings.trunk_dropout)
    if settings.recompute:
        enable_gradient_checkpointing(denoiser.network)
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
    for label, head in heads.items():
        save_networks(Heads(job.folder).file(label), {"": head})
    counts = {label: sum(p.numel() for p in head.parameters()) for label, head in heads.items()}
    job.note(parameters=counts)


def _keep(job: Job, state: TrainingState) -> None:
    """Keep the averaged heads now and then, for `selection` to choose among."""
    from ocm_core.distributed import current_rank
    from ocm_core.io.checksums import record_checksum
    from ocm_core.stages._training import save_average

    every = job.experiment.train.heads.keep_every
    if every and state.iteration % every == 0:
        file = Heads(job.folder).kept(state.iteration)
        save_average(file, state)
        if current_rank().is_first:
            record_checksum(file)


def _forget_without_kept(job: Job) -> None:
    """Start anew if heads were lost that a resumed run would not make again."""
    from ocm_core.training.state import saved_at, state_file

    if lost := _lost(job, saved_at(job.state) or 0):
        job.log.warning("%s: lost or damaged since it was kept; training starts anew", lost[0])
        state_file(job.state).unlink()


def _lost(job: Job, iterations: int) -> list[Path]:
    """Return the files that so many iterations should have kept, and that are not intact."""
    from ocm_core.io.checksums import is_intact

    every = job.experiment.train.heads.keep_every or iterations + 1
    kept = (Heads(job.folder).kept(n) for n in range(every, iterations + 1, every))
    return [file for file in kept if not is_intact(file)]


def _baselines(job: Job, fitting: HeadFitting, variance: float) -> dict[str, Tensor | None]:
    """Return c̄_t by method, as its form says; None where there is none."""
    from ocm_core.training.baselines import gaussian_baseline, or_gaussian, target_means

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
        raise OcmError(
            "head.baseline: moments requires the `moments` stage, which this experiment does not"
            " run"
        )
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
