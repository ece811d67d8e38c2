"""How far the covariance of a reverse step is from the truth, at every timestep asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import sqrt
from typing import TYPE_CHECKING, cast

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from ocm_core.artifacts.encoded import read_split
from ocm_core.artifacts.heads import load_denoiser
from ocm_core.artifacts.machine import machine_class
from ocm_core.artifacts.results import save
from ocm_core.covariance import build_all
from ocm_core.covariance.interface import NON_NEGATIVE, CovarianceMethod, ReverseStep
from ocm_core.diffusion.denoiser import Denoiser
from ocm_core.diffusion.mixture import Mixture, mixture
from ocm_core.diffusion.schedule import q_sample
from ocm_core.diffusion.transition import Ddpm, Transition, transition
from ocm_core.rng.noise import SampleNoise, Use
from ocm_core.schema.block import require
from ocm_core.schema.datasets import MixtureData

if TYPE_CHECKING:
    from ocm_core.pipeline.job import Job


def run(job: Job) -> None:
    experiment, settings = job.experiment, require(job.experiment.evaluate.covariance_error)
    methods = build_all(experiment.methods)
    truth = mixture(cast(MixtureData, experiment.data))
    # in float64: at large t the variances agree to more digits than float32 has
    x0 = read_split(job, "test")[: settings.points].to(job.device).double()
    scores, times = experiment.network.scores, settings.times
    found = np.full((2, len(scores), len(times), len(methods)), np.nan)
    for i, score in enumerate(scores):
        model = _double(load_denoiser(job, score, methods))
        for k, t in enumerate(job.progress(times, f"covariance error, {score} score")):
            shape = tuple(x0.shape[1:])
            noise = SampleNoise(
                settings.seed, range(len(x0)), shape, job.device, Use.COVARIANCE_ERROR, t
            )
            found[:, i, k] = _errors(model, methods, truth, x0, t, noise)
    dims = ("score", "t", "method")
    names = ("covariance_error", "covariance_error_se")
    coords = {"score": list(scores), "t": times, "method": list(methods)}
    job.note(machine=machine_class(job))
    save(
        job.folder,
        xr.Dataset({n: (dims, v) for n, v in zip(names, found, strict=True)}, coords),
    )


def _double(model: Denoiser) -> Denoiser:
    heads = {label: head.double() for label, head in model.heads.items()}
    return replace(model, network=model.network.double(), heads=heads)


def _errors(
    model: Denoiser,
    methods: Mapping[str, CovarianceMethod],
    truth: Mixture,
    x0: Tensor,
    t: int,
    noise: SampleNoise,
) -> np.ndarray:
    """Mean squared error of the diagonal over x_t ~ q(x_t), and its standard error, per method."""
    step = transition(model.schedule, t - 1, t)
    x = q_sample(x0, noise.normal(), *model.schedule.marginal(t))
    exact = _true_variance(truth, step, x)
    with torch.no_grad():
        seen = model.predict(x, t)
    columns = []
    for method in methods.values():
        covariances = method.step_covariance(seen, noise)(ReverseStep(step, Ddpm(), NON_NEGATIVE))
        squares = ((covariances.diagonal(x) - exact) ** 2).mean(1)
        columns.append((float(squares.mean()), float(squares.std()) / sqrt(len(squares))))
    return np.array(columns).T


def _true_variance(truth: Mixture, step: Transition, x: Tensor) -> Tensor:
    """β̃ + a² diag Cov[x_0 | x_t], in float64."""
    one = torch.ones(len(x), 1, dtype=torch.float64)
    _, posterior = truth.posterior(x.cpu(), step.alpha_bar_t * one, step.b_t * one)
    diagonal = posterior.diagonal(dim1=1, dim2=2)
    return (Ddpm().floor(step) + Ddpm().gain(step) * diagonal).to(x.device)
