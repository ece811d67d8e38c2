"""Estimate E‖ε̂‖²/d at every timestep: the moments that the analytic method is made of."""

from functools import reduce

import numpy as np
import torch

from ocm_core.distributed import current_rank
from ocm_core.errors import OcmError
from ocm_core.io.atomic import replacing
from ocm_core.io.state_file import load_state, save_state
from ocm_core.shapes import OverTime
from ocm_core.stages import Artifact, Inputs, Job, Params, Stage, Work
from ocm_core.stages._networks import evaluating, load_score, needs_moments, open_training_set
from ocm_core.training.batches import DroppedLabels
from ocm_core.training.moments import Moments, estimate, grid

FILE = "moments.npz"
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
    with np.load(table.folder / FILE) as tables:
        moments = Moments(**{name: np.array(tables[name]) for name in tables.files})
    values = torch.from_numpy(moments.one_minus_gamma)
    return (values.float() if job.device == "mps" else values).to(job.device)


def run(job: Job) -> None:
    """Average over noisy training images, timestep by timestep."""
    settings = job.experiment.train.moments
    rank, denoiser = current_rank(), load_score(job, job.part)

    def begun() -> Moments:
        """Load what all processes have computed together, however many there were."""
        states = (load_state(file) for file in sorted(job.state.glob("moments-*.safetensors")))
        tables = (state.tensors for state in states if state)
        known = (Moments(**{name: t.numpy() for name, t in part.items()}) for part in tables)
        return reduce(Moments.joined, known, Moments.empty(denoiser.schedule.steps))

    def keep(moments: Moments) -> None:
        tables = {name: torch.from_numpy(table) for name, table in vars(moments).items()}
        save_state(job.state / f"moments-{rank.index}.safetensors", tables, None)

    found = estimate(
        denoiser,
        DroppedLabels(open_training_set(job)[0], denoiser.network),
        settings,
        device=job.device,
        progress=lambda times: job.progress(times, "moments"),
        begun=rank.agreed(begun),
        keep=keep,
        rank=rank,
    )
    keep(found)
    rank.wait()
    if rank.is_first:
        times, moments = grid(settings, denoiser.schedule.steps), begun()
        if missing := moments.missing(times):
            raise OcmError(
                f"{job.state}: {len(missing)} timesteps have no finite moments, or were"
                " lost; check the network's weights, then run it again"
            )
        with replacing(job.folder / FILE) as temporary, temporary.open("wb") as opened:
            np.savez(opened, **vars(moments.between(times)))
    job.note(draws_per_timestep=settings.draws)
