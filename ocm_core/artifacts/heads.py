"""Covariance heads and moments: what a score network is given before it can be sampled.

Heads are those of the end of training, or those that `selection` has chosen among the kept ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from safetensors.torch import load_file
from torch import Tensor

from ocm_core.artifacts.moments import load_moments
from ocm_core.artifacts.score import load_score
from ocm_core.artifacts.trained import frozen
from ocm_core.covariance.learned import CovarianceHead
from ocm_core.diffusion.denoiser import Denoiser
from ocm_core.diffusion.score_network import ScoreNetwork
from ocm_core.shapes import OverTime, TimeTable

if TYPE_CHECKING:
    from ocm_core.pipeline.job import Job
    from ocm_core.schema.experiment import Experiment

HEADS_FILE = "heads.safetensors"


def new_head(
    experiment: Experiment, label: str, network: ScoreNetwork, baseline: Tensor | None
) -> CovarianceHead:
    head, form = experiment.head, experiment.head.form(experiment.methods[label])
    net = network.make_head(head.kind, **head.sizes)
    return CovarianceHead(net, baseline, form.link, form.unit)


def load_denoiser(job: Job, score: str, labels: Iterable[str] = ()) -> Denoiser:
    """The frozen score network, with the heads of `labels` and the moments that are at hand."""
    denoiser = load_score(job, score)
    needing = [label for label in labels if job.experiment.methods[label].needs == "head"]
    heads = load_heads(job, denoiser.network, _heads_file(job, score), needing) if needing else {}
    moments = job.inputs.get(f"moments/{score}")
    table = None if moments is None else _on(job.device, load_moments(moments).one_minus_gamma)
    return replace(denoiser, heads=heads, moments=table)


def _on(device: str, table: TimeTable) -> OverTime:
    """In float64 where the device has it."""
    values = torch.from_numpy(table)
    return (values.float() if device == "mps" else values).to(device)


def kept_file(folder: Path, iteration: int) -> Path:
    """The average of all heads after so many iterations."""
    return folder / "kept" / f"{iteration}.safetensors"


def load_heads(
    job: Job, network: ScoreNetwork, file: Path, labels: Iterable[str]
) -> dict[str, CovarianceHead]:
    weights = load_file(file)
    return {label: _head(job, network, weights, label) for label in labels}


def _heads_file(job: Job, score: str) -> Path:
    chosen = job.inputs.get(f"selection/{score}")
    return (chosen or job.inputs[f"heads/{score}"]) / HEADS_FILE


def _head(
    job: Job, network: ScoreNetwork, weights: Mapping[str, Tensor], label: str
) -> CovarianceHead:
    own = {k.removeprefix(f"{label}."): v for k, v in weights.items() if k.startswith(f"{label}.")}
    head = new_head(job.experiment, label, network, own.get("baseline"))
    head.load_state_dict(own)
    return frozen(head, job.device)
