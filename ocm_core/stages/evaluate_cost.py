"""What a covariance costs at sampling time: one evaluation of the network, and with each method.

The only artifact that is not a function of its inputs: it is a measurement. Methods take turns, so
that a busy moment of the machine falls on all of them.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from functools import partial
from math import sqrt
from statistics import median, quantiles
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ocm_core.artifacts.heads import load_denoiser
from ocm_core.covariance import build_all
from ocm_core.covariance.interface import CovarianceMethod, ReverseStep
from ocm_core.diffusion.denoiser import Denoiser
from ocm_core.diffusion.transition import Ddim, Ddpm, transition
from ocm_core.rng.noise import SampleNoise, Use
from ocm_core.schema.block import require

if TYPE_CHECKING:
    from ocm_core.pipeline.job import Job

COST_FILE = "cost.json"
ALONE = "score"
_QUARTILES_APART = 1.349  # standard deviations of a Gaussian
_OF_THE_MEDIAN = 1.2533  # its standard error, relative to that of the mean


def run(job: Job) -> None:
    experiment, settings = job.experiment, require(job.experiment.evaluate.cost)
    methods = build_all(experiment.methods)
    denoiser = load_denoiser(job, experiment.network.scores[-1], methods)
    rows = range(settings.batch_size)
    noise = SampleNoise(0, rows, experiment.shape, job.device, Use.TIMING)
    x = noise.normal()
    label = None
    if denoiser.network.conditional:
        label = torch.zeros(len(rows), dtype=torch.int64, device=job.device)
    evaluate = partial(_evaluate, denoiser, x, label, noise)
    candidates: dict[str, Callable[[], object]] = {ALONE: partial(evaluate, None)}
    candidates |= {name: partial(evaluate, method) for name, method in methods.items()}
    seconds: dict[str, list[float]] = {name: [] for name in candidates}
    for _ in job.progress(settings.repeats, "cost"):
        for name, candidate in candidates.items():
            seconds[name].append(_seconds(candidate, job.device))
    found = {
        "setting": f"batches of {len(rows)} on {_device(job)}",
        "network_parameters": sum(p.numel() for p in denoiser.network.parameters()),
        "milliseconds": {name: 1e3 * median(values) for name, values in seconds.items()},
        "ratios": {name: _ratio(values, seconds[ALONE]) for name, values in seconds.items()},
    }
    (job.folder / COST_FILE).write_text(json.dumps(found, indent=1) + "\n")


def _ratio(ours: list[float], alone: list[float]) -> tuple[float, float]:
    """The median over repeats, and its standard error, from the spread of the middle half."""
    found = [one / other for one, other in zip(ours, alone, strict=True)]
    low, _, high = quantiles(found, n=4, method="inclusive") if len(found) > 1 else found * 3
    deviation = (high - low) / _QUARTILES_APART
    return median(found), _OF_THE_MEDIAN * deviation / sqrt(len(found))


@torch.no_grad()
def _evaluate(
    denoiser: Denoiser,
    x: Tensor,
    label: Tensor | None,
    noise: SampleNoise,
    method: CovarianceMethod | None,
) -> None:
    steps = denoiser.schedule.steps
    prediction = denoiser.predict(x, steps // 2, label)
    if method is not None:
        kernel = Ddpm() if "ddpm" in method.samplers else Ddim()
        step = transition(denoiser.schedule, steps // 4, steps // 2)
        method.step_covariance(prediction, noise)(ReverseStep(step, kernel)).diagonal(x)


def _seconds(candidate: Callable[[], object], device: str) -> float:
    start = time.perf_counter()
    candidate()
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start


def _device(job: Job) -> str:
    if job.device == "cuda":
        return torch.cuda.get_device_name()
    return f"{job.threads} CPU {'core' if job.threads == 1 else 'cores'}"
