"""Estimate E‖ε̂‖²/d at every timestep: the moments that the analytic method is made of."""

from functools import partial, reduce
from pathlib import Path

import numpy as np
import torch

from ocm_core.distributed import current_rank
from ocm_core.errors import OcmError
from ocm_core.io.atomic import replacing
from ocm_core.io.state_file import load_state, save_state
from ocm_core.shapes import OverTime
from ocm_core.stages import Artifact, Job, Params, Stage, Work
from ocm_core.stages._networks import evaluating, load_score, needs_moments, open_training_set
from ocm_core.training.moments import Moments, estimate

STAGE: Stage[Params] = Stage(
    __name__,
    "train",
    parts=lambda e: list(e.network.scores) if needs_moments(e, e.methods) else [],
    **evaluating("train.moments"),
    shared=True,
    work=lambda e, part: Work(e.train.moments.draws * e.schedule.steps),
)


class MomentsTable(Artifact):
    """The table of moments over the timesteps."""

    def save(self, moments: Moments) -> None:
        file = self.folder / "moments.npz"
        with replacing(file) as temporary, temporary.open("wb") as stream:
            np.savez(stream, **vars(moments))

    def load(self) -> Moments:
        with np.load(self.folder / "moments.npz") as tables:
            return Moments(**{name: np.array(tables[name]) for name in tables.files})

    def one_minus_gamma(self, device: str) -> OverTime:
        """Return 1 - Γ_t on the device, in float64 where the device has it."""
        values = torch.from_numpy(self.load().one_minus_gamma)
        return (values.float() if device == "mps" else values).to(device)


def run(job: Job) -> None:
    settings = job.experiment.train.moments
    rank, denoiser = current_rank(), load_score(job, job.part)
    begun = partial(_load_begun, job.state, denoiser.schedule.steps)

    def keep(moments: Moments) -> None:
        tables = {name: torch.from_numpy(table) for name, table in vars(moments).items()}
        save_state(job.state / f"moments-{rank.index}.safetensors", tables, None)

    found = estimate(
        denoiser,
        open_training_set(job).for_network(denoiser.network),
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
        moments = begun()
        if moments.missing:
            raise OcmError(
                f"{job.state}: {len(moments.missing)} timesteps have no finite moments, or were"
                " lost; check the network's weights, then run it again"
            )
        MomentsTable(job.folder).save(moments)
    job.note(draws_per_timestep=settings.draws)


def _load_begun(folder: Path, steps: int) -> Moments:
    """Load what all processes have computed together, however many there were."""
    states = (load_state(file) for file in sorted(folder.glob("moments-*.safetensors")))
    tables = (state.tensors for state in states if state)
    known = (Moments(**{name: t.numpy() for name, t in part.items()}) for part in tables)
    return reduce(Moments.joined, known, Moments.empty(steps))
