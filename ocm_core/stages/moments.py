"""Estimate E‖ε̂‖²/d at every timestep: the moments that the analytic method is made of."""

import numpy as np
import torch

from ocm_core.distributed import current_rank
from ocm_core.errors import OcmError
from ocm_core.io.atomic import replacing
from ocm_core.pipeline.pieces import PartialResult, computed
from ocm_core.rng.batches import batches
from ocm_core.shapes import OverTime
from ocm_core.stages import Artifact, Inputs, Job, Params, Stage, Work
from ocm_core.stages._networks import evaluating, load_score, needs_moments, open_training_set
from ocm_core.training.batches import DroppedLabels
from ocm_core.training.moments import estimate, grid, tables

FILE = "moments.npz"
TOGETHER = 10  # timesteps that are saved at once
STAGE: Stage[Params] = Stage(
    __name__,
    "train",
    parts=lambda e: list(e.network.scores) if needs_moments(e, e.methods) else [],
    **evaluating("train.moments"),
    shared=True,
    work=lambda e, part: Work(e.train.moments.draws * len(grid(e.train.moments, e.schedule.steps))),
)


class MomentsTable(Artifact):
    """The table of moments over the timesteps."""


def moments_of(job: Inputs, score: str) -> OverTime | None:
    """Load 1 - Γ_t in float64 where the device has it; None where the job takes no moments."""
    if (table := job.find(MomentsTable, score)) is None:
        return None
    with np.load(table.folder / FILE) as known:
        values = torch.from_numpy(known["one_minus_gamma"])
    return (values.float() if job.device == "mps" else values).to(job.device)


def run(job: Job) -> None:
    """Average over noisy training images, timestep by timestep."""
    settings, denoiser = job.experiment.train.moments, load_score(job, job.part)
    items = DroppedLabels(open_training_set(job)[0], denoiser.network)
    steps = denoiser.schedule.steps
    times = grid(settings, steps)

    def compute(rows: range) -> PartialResult:
        some = times[rows.start : rows.stop]
        entries = estimate(denoiser, items, settings, some, job.device).cpu()
        if missing := int(entries.isnan().any(0).sum()):
            raise OcmError(
                f"{job.task}: {missing} timesteps from {some[0]} to {some[-1]} have no finite"
                " moments; check the network's weights, then run it again"
            )
        return {"entries": entries}, None

    cut = {f"moments-{rows.start}": rows for rows in batches(len(times), TOGETHER)}
    states = computed(job, cut, compute, "moments")
    if current_rank().is_first:
        entries = torch.cat([state.tensors["entries"] for state in states], 1)
        with replacing(job.folder / FILE) as temporary, temporary.open("wb") as opened:
            np.savez(opened, **tables(steps, times, entries))  # type: ignore[arg-type]
    job.note(draws_per_timestep=settings.draws)
