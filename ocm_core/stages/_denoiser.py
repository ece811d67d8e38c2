"""The frozen denoiser of an experiment, with the heads and moments that covariance methods need."""

from collections.abc import Iterable
from dataclasses import replace

from ocm_core.diffusion.denoiser import Denoiser
from ocm_core.stages import Inputs
from ocm_core.stages._networks import load_score
from ocm_core.stages.heads import Heads
from ocm_core.stages.moments import MomentsTable
from ocm_core.stages.selection import SelectedHeads


def load_denoiser(job: Inputs, score: str, labels: Iterable[str] = ()) -> Denoiser:
    """Load the score network with the heads of `labels`, and the moments that are at hand."""
    denoiser, heads = load_score(job, score), {}
    if needing := [label for label in labels if job.experiment.methods[label].needs == "head"]:
        artifact = job.find(SelectedHeads, score) or job.take(Heads, score)
        heads = artifact.load(job.experiment, denoiser.network, needing, job.device)
    moments = job.find(MomentsTable, score)
    table = None if moments is None else moments.one_minus_gamma(job.device)
    return replace(denoiser, heads=heads, moments=table)
