"""How far the covariance of a reverse step is from the truth, at every timestep asked for."""

from __future__ import annotations

from importlib import import_module
from math import sqrt
from typing import TYPE_CHECKING

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from ocm_core import covariance
from ocm_core.covariance.interface import NON_NEGATIVE, ReverseStep
from ocm_core.diffusion.denoiser import Denoiser
from ocm_core.diffusion.noise import SampleStreams
from ocm_core.diffusion.transition import Ddpm, Transition, transition
from ocm_core.likelihood.terms import diffuse
from ocm_core.results import save
from ocm_core.stages._model import load_denoiser, read_items

if TYPE_CHECKING:
    from ocm_core.params.schema import Experiment
    from ocm_core.pipeline.job import Job


def run(job: Job) -> None:
    experiment, settings = job.experiment, job.experiment.evaluate.covariance_error
    if settings is None:
        raise ValueError("the graph has this stage only where evaluate.covariance_error is set")
    methods = {
        label: covariance.build(method.kind, label, **method.options)
        for label, method in experiment.methods.items()
    }
    methods = {label: method for label, method in methods.items() if "ddpm" in method.samplers}
    scores = experiment.network.scores
    shape = (len(scores), len(methods), len(settings.times))
    errors, spreads = np.full(shape, np.nan), np.full(shape, np.nan)
    truth = import_module(f"ocm_core.data.{experiment.data.kind}").mixture(experiment.data)
    x0 = read_items(job, "test")[: settings.points].to(job.device)
    for i, score in enumerate(scores):
        model = load_denoiser(job, score, methods)
        for k, t in enumerate(job.progress(settings.times, f"covariance error, {score} score")):
            step = transition(model.schedule, t - 1, t)
            noise = SampleStreams(settings.seed + t, range(len(x0)), tuple(x0.shape[1:]), job.device)
            x = diffuse(model.schedule, x0, t, noise.normal())
            exact = _true_variance(truth, step, x)
            seen = model.predict(x, t)
            for j, method in enumerate(methods.values()):
                found = method.look(seen, noise)(ReverseStep(step, Ddpm(), NON_NEGATIVE))
                squares = ((found.diagonal(x).double() - exact) ** 2).mean(1)
                errors[i, j, k] = float(squares.mean())
                spreads[i, j, k] = float(squares.std()) / sqrt(len(squares))
    dims = ("score", "method", "t")
    save(
        job.folder,
        xr.Dataset(
            {"covariance_error": (dims, errors), "covariance_error_se": (dims, spreads)},
            coords={"score": list(scores), "method": list(methods), "t": settings.times},
        ),
    )


def _true_variance(truth: object, step: Transition, x: Tensor) -> Tensor:
    """β̃ + a² diag Cov[x_0 | x_t], in float64."""
    alpha_bar, b = (torch.full((len(x), 1), v, dtype=torch.float64) for v in (step.alpha_bar_t, step.b_t))
    _, posterior = truth.posterior(x.double().cpu(), alpha_bar, b)
    diagonal = posterior.diagonal(dim1=1, dim2=2)
    return (Ddpm().floor(step) + Ddpm().gain(step) * diagonal).to(x.device)
