"""Measure how far the covariance of a reverse step is from the exact one, timestep by timestep."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import sqrt
from typing import TYPE_CHECKING, cast

from ocm_core.datasets.mixture import MixtureData
from ocm_core.pipeline.stage import Stage, Task, Work
from ocm_core.results.table import Results, Row
from ocm_core.schema.block import Choices, Count, Params, Seed, SetSize
from ocm_core.stages._networks import MODEL_KEYS, family_modules
from ocm_core.stages._results import ResultsTable, machine_class
from ocm_core.stages.encode import encode_tasks, open_split

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from ocm_core.covariance.interface import CovarianceMethod
    from ocm_core.diffusion.denoiser import Denoiser
    from ocm_core.diffusion.mixture import Mixture
    from ocm_core.diffusion.transition import Transition
    from ocm_core.pipeline.job import Job
    from ocm_core.rng.noise import SampleNoise
    from ocm_core.schema.experiment import Experiment


class CovarianceErrorParams(Params):
    """Squared error of the diagonal of the reverse covariance, at adjacent steps."""

    times: Choices[Count]
    points: SetSize = 1000
    seed: Seed = 4


def _check(experiment: Experiment) -> Iterator[str]:
    if experiment.data.kind != "mixture":
        yield "evaluate.covariance_error: the exact covariance is known of mixtures only; use null"


def ddpm_methods(experiment: Experiment, part: str = "all") -> list[str]:
    """Return the methods that DDPM samplers use."""
    samplers = (s for s in experiment.sample.samplers.values() if s.kind == "ddpm")
    return list(dict.fromkeys(label for sampler in samplers for label in sampler.methods))


def _takes(experiment: Experiment, part: str) -> list[Task]:
    from ocm_core.stages._denoiser import denoiser_tasks

    return [*encode_tasks(experiment), *denoiser_tasks(experiment, ddpm_methods(experiment))]


def _work(experiment: Experiment, part: str) -> Work:
    settings = STAGE.settings(experiment)
    return Work(float(settings.points * len(settings.times) * len(experiment.network.scores)))


STAGE = Stage(
    __name__,
    "evaluate",
    params=CovarianceErrorParams,
    takes=_takes,
    reads=(*MODEL_KEYS, "head", "sample.samplers", "train.selection"),
    methods=ddpm_methods,
    plugins=lambda experiment, part: family_modules(experiment),
    gpu=True,
    memory=16_000,
    work=_work,
    check=_check,
)


class CovarianceErrors(ResultsTable):
    """Rows of the measure `covariance_error`."""


def run(job: Job) -> None:
    import torch

    from ocm_core.covariance import build_all
    from ocm_core.diffusion.mixture import mixture
    from ocm_core.rng.noise import NoiseFor, SampleNoise
    from ocm_core.stages._denoiser import load_denoiser

    experiment, settings = job.experiment, STAGE.settings(job.experiment)
    methods = build_all(experiment.methods)
    truth = mixture(cast(MixtureData, experiment.data))
    # in float64: at large t the variances agree to more digits than float32 has
    x0 = torch.from_numpy(open_split(job, "test").all())[: settings.points].to(job.device).double()
    rows = []
    for score in experiment.network.scores:
        model = _double(load_denoiser(job, score, methods))
        for t in job.progress(settings.times, f"covariance error, {score} score"):
            shape = tuple(x0.shape[1:])
            noise = SampleNoise(
                settings.seed, range(len(x0)), shape, job.device, NoiseFor.COVARIANCE_ERROR, t
            )
            for label, value, error in _errors(model, methods, truth, x0, t, noise):
                rows.append(
                    Row(
                        "covariance_error",
                        value,
                        error,
                        score=score,
                        method=label,
                        timesteps=str(t),
                    )
                )
    CovarianceErrors(job.folder).save(Results(rows))
    job.note(machine=machine_class(job))


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
) -> Iterator[tuple[str, float, float]]:
    """Yield the mean squared error of the diagonal over x_t ~ q(x_t), and its standard error."""
    import torch

    from ocm_core.covariance.interface import NON_NEGATIVE, ReverseStep
    from ocm_core.diffusion.kernels.ddpm import Ddpm
    from ocm_core.diffusion.schedule import q_sample
    from ocm_core.diffusion.transition import transition

    step = transition(model.schedule, t - 1, t)
    x = q_sample(x0, noise.normal(), *model.schedule.marginal(t))
    exact = _exact_variance(truth, step, x)
    with torch.no_grad():
        seen = model.predict(x, t)
    for label, method in methods.items():
        covariances = method.step_covariance(seen, noise)(ReverseStep(step, Ddpm(), NON_NEGATIVE))
        squares = ((covariances.diagonal(x) - exact) ** 2).mean(1)
        yield label, float(squares.mean()), float(squares.std()) / sqrt(len(squares))


def _exact_variance(truth: Mixture, step: Transition, x: Tensor) -> Tensor:
    """β̃ + a² diag Cov[x_0 | x_t], in float64."""
    import torch

    from ocm_core.diffusion.kernels.ddpm import Ddpm

    one = torch.ones(len(x), 1, dtype=torch.float64)
    _, posterior = truth.posterior(x.cpu(), step.alpha_bar_t * one, step.b_t * one)
    diagonal = posterior.diagonal(dim1=1, dim2=2)
    return (Ddpm().floor(step) + Ddpm().gain(step) * diagonal).to(x.device)
