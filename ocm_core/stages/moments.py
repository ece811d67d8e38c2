"""Estimate E‖ε̂‖²/d at every timestep: the moments that the analytic method is made of."""

from __future__ import annotations

from functools import partial, reduce
from typing import TYPE_CHECKING

from ocm_core.errors import OcmError
from ocm_core.pipeline.artifacts import Artifact
from ocm_core.pipeline.stage import Stage, Work
from ocm_core.schema.block import Params
from ocm_core.stages._networks import MODEL_KEYS, family_modules, needs_moments, score_task
from ocm_core.stages.encode import encode_tasks

if TYPE_CHECKING:
    from pathlib import Path

    from ocm_core.pipeline.job import Job
    from ocm_core.schema.experiment import Experiment
    from ocm_core.shapes import OverTime
    from ocm_core.training.moments import Moments


def _parts(experiment: Experiment) -> list[str]:
    needed = needs_moments(experiment, experiment.methods)
    return list(experiment.network.scores) if needed else []


STAGE: Stage[Params] = Stage(
    __name__,
    "train",
    parts=_parts,
    takes=lambda experiment, part: [*encode_tasks(experiment), score_task(part)],
    reads=(*MODEL_KEYS, "train.moments"),
    plugins=lambda experiment, part: family_modules(experiment, [part]),
    shared=True,
    gpu=True,
    memory=16_000,
    work=lambda experiment, part: Work(
        float(experiment.train.moments.draws * experiment.schedule.steps)
    ),
)


class MomentsTable(Artifact):
    """The table of moments over the timesteps."""

    @property
    def file(self) -> Path:
        return self.folder / "moments.npz"

    def save(self, moments: Moments) -> None:
        import numpy as np

        from ocm_core.io.atomic import replacing

        with replacing(self.file) as temporary, temporary.open("wb") as stream:
            np.savez(stream, **vars(moments))

    def load(self) -> Moments:
        import numpy as np

        from ocm_core.training.moments import Moments

        with np.load(self.file) as tables:
            return Moments(**{name: np.array(tables[name]) for name in tables.files})

    def one_minus_gamma(self, device: str) -> OverTime:
        """Return 1 - Γ_t on the device, in float64 where the device has it."""
        import torch

        values = torch.from_numpy(self.load().one_minus_gamma)
        return (values.float() if device == "mps" else values).to(device)


def run(job: Job) -> None:
    from ocm_core.distributed import current_rank
    from ocm_core.stages._denoiser import load_score
    from ocm_core.stages._training import open_training_set
    from ocm_core.training.moments import estimate

    settings = job.experiment.train.moments
    rank, denoiser = current_rank(), load_score(job, job.part)
    begun = partial(_load_begun, job.state, denoiser.schedule.steps)
    keep = partial(_save_begun, job.state, rank.index)
    mine = estimate(
        denoiser,
        open_training_set(job).for_network(denoiser.network),
        settings,
        device=job.device,
        progress=lambda times: job.progress(times, "moments"),
        begun=rank.agreed(begun),
        keep=keep,
        rank=rank,
    )
    keep(mine)
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


def _save_begun(folder: Path, rank: int, moments: Moments) -> None:
    """Keep what one of the processes has computed."""
    import torch

    from ocm_core.io.state_file import save_state

    tables = {name: torch.from_numpy(table) for name, table in vars(moments).items()}
    save_state(folder / f"moments-{rank}.safetensors", tables, None)


def _load_begun(folder: Path, steps: int) -> Moments:
    """Load what all processes have computed together, however many there were."""
    from ocm_core.io.state_file import load_state
    from ocm_core.training.moments import Moments

    states = (load_state(file) for file in sorted(folder.glob("moments-*.safetensors")))
    tables = (state.tensors for state in states if state)
    known = (Moments(**{name: t.numpy() for name, t in part.items()}) for part in tables)
    return reduce(Moments.joined, known, Moments.empty(steps))
