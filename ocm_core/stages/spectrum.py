"""Estimate the variance of x_0 - x̂_0 along the vectors of a basis, on a grid of timesteps."""

import torch
from safetensors.torch import load_file

from ocm_core.covariance.interface import Clip
from ocm_core.diffusion import basis as bases
from ocm_core.diffusion.basis import Spectrum
from ocm_core.distributed import current_rank
from ocm_core.io.atomic import write_tensors
from ocm_core.pipeline.pieces import PartialResult, computed
from ocm_core.stages import Artifact, Experiment, Inputs, Job, Params, Stage, Work
from ocm_core.stages._networks import SAMPLE, evaluating, load_score, open_training_set
from ocm_core.stages.encode import open_split
from ocm_core.training.batches import DroppedLabels
from ocm_core.training.spectra import grid, spectrum_of, variances

FILE = "spectrum.safetensors"


def _score(experiment: Experiment, part: str) -> list[str]:
    return [part.partition("-")[0]]


STAGE: Stage[Params] = Stage(
    __name__,
    "train",
    parts=lambda e: [
        f"{score}-{basis}"
        for score in e.network.scores
        for basis in sorted({method.spectrum for method in e.methods.values()} - {""})
    ],
    **evaluating("sample.clip.x0", "train.spectrum", scores=_score),
    shared=True,
    work=lambda e, part: Work(e.train.spectrum.images * e.train.spectrum.points),
)


class SpectrumTable(Artifact):
    """The spectrum of one score in one basis."""

    def load(self, device: str = "cpu") -> Spectrum:
        """Load it onto a device."""
        return Spectrum.of_tensors(load_file(self.folder / FILE), device)


def spectra_of(job: Inputs, score: str) -> dict[str, Spectrum]:
    """Load the spectra of a score that the job takes, by the name of their basis."""
    tables = {basis: job.find(SpectrumTable, f"{score}-{basis}") for basis in bases.BASES}
    return {basis: table.load(job.device) for basis, table in tables.items() if table}


def run(job: Job) -> None:
    """Average over noisy training images, timestep by timestep."""
    score, _, name = job.part.partition("-")
    settings, clip = job.experiment.train.spectrum, Clip(x0=job.experiment.sample.clip.x0)
    denoiser, (items, _) = load_score(job, score), open_training_set(job)
    stored, labelled = open_split(job, "train"), DroppedLabels(items, denoiser.network)
    basis = bases.build(name, torch.from_numpy(stored.read(range(min(len(stored), SAMPLE)))))

    def compute(t: int) -> PartialResult:
        found = variances(denoiser, labelled, basis, t, settings, clip, job.device)
        return {"variance": found}, None

    times = grid(denoiser.schedule, settings)
    states = computed(job, {f"t{t}": t for t in times}, compute, f"spectrum in {name}")
    if current_rank().is_first:
        found = spectrum_of(basis, times, (state.tensors["variance"] for state in states))
        write_tensors(job.folder / FILE, found.tensors())
    job.note(images=settings.images, timesteps=len(times))
