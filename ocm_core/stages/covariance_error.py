"""Measure how far the covariance of a reverse step is from the exact one, timestep by timestep."""

from dataclasses import replace
from math import sqrt
from typing import Any, cast

import torch

from ocm_core.covariance import build_all, class_of
from ocm_core.covariance.interface import NON_NEGATIVE, ReverseStep
from ocm_core.datasets.mixture import MixtureData
from ocm_core.diffusion.kernels.ddpm import Ddpm
from ocm_core.diffusion.mixture import mixture
from ocm_core.diffusion.schedule import q_sample
from ocm_core.diffusion.transition import transition
from ocm_core.results.table import Results, Row
from ocm_core.rng.noise import NoiseFor, SampleNoise
from ocm_core.schema.block import Choices, Count, Seed, SetSize
from ocm_core.stages import Experiment, Job, Params, Stage, Work
from ocm_core.stages._networks import evaluating
from ocm_core.stages._results import ResultsTable, machine_class
from ocm_core.stages.encode import open_split
from ocm_core.stages.heads import load_denoiser

NO_MIXTURE = "evaluate.covariance_error: the exact covariance is known of mixtures only; use null"


class CovarianceErrorParams(Params):
    """Squared error of the diagonal of the reverse covariance, at adjacent steps."""

    times: Choices[Count]
    points: SetSize = 1000
    seed: Seed = 4


def ddpm_methods(experiment: Experiment, part: str) -> list[str]:
    """Return the methods that DDPM samplers use, if they have a diagonal."""
    samplers = (s for s in experiment.sample.samplers.values() if s.kind == "ddpm")
    used = dict.fromkeys(label for sampler in samplers for label in sampler.methods)
    return [label for label in used if class_of(experiment.methods[label].kind).has_density]


STAGE: Stage[CovarianceErrorParams] = Stage(
    __name__,
    "evaluate",
    params=CovarianceErrorParams,
    **evaluating("sample.samplers", methods=ddpm_methods),
    work=lambda e, part: Work(
        (s := STAGE.settings(e)).points * len(s.times) * len(e.network.scores)
    ),
    check=lambda experiment: [NO_MIXTURE] * (experiment.data.kind != "mixture"),
)


class CovarianceErrors(ResultsTable):
    """Rows of the measure `covariance_error`."""


def run(job: Job) -> None:
    """Compare every method with the closed form, at the same noisy points."""
    experiment, settings = job.experiment, STAGE.settings(job.experiment)
    methods, rows = build_all(experiment.methods), []
    truth = mixture(cast(MixtureData, experiment.data))
    # in float64: at large t the variances agree to more digits than float32 has
    x0 = torch.from_numpy(open_split(job, "test").all())[: settings.points].to(job.device).double()
    whose = (settings.seed, range(len(x0)), tuple(x0.shape[1:]), job.device)
    for score in experiment.network.scores:
        model = load_denoiser(job, score, methods)
        heads = {label: head.double() for label, head in model.heads.items()}
        model = replace(model, network=model.network.double(), heads=heads)
        for t in job.progress(settings.times, f"covariance error, {score} score"):
            noise = SampleNoise(*whose, NoiseFor.COVARIANCE_ERROR, t)
            step = transition(model.schedule, t - 1, t)
            x = q_sample(x0, noise.normal(), *model.schedule.marginal(t))
            # the exact diagonal, β̃ + a² diag Cov[x_0 | x_t], in float64
            one = torch.ones(len(x), 1, dtype=torch.float64)
            _, posterior = truth.posterior(x.cpu(), step.alpha_bar_t * one, step.b_t * one)
            diagonal = posterior.diagonal(dim1=1, dim2=2)
            exact = (Ddpm().floor(step) + Ddpm().gain(step) * diagonal).to(x.device)
            with torch.no_grad():
                seen = model.predict(x, t)
            for label, method in methods.items():
                covariance = method.step_covariance(seen, noise)
                found = covariance(ReverseStep(step, Ddpm(), NON_NEGATIVE)).diagonal(x)
                squares = ((found - exact) ** 2).mean(1)
                value, error = float(squares.mean()), float(squares.std()) / sqrt(len(squares))
                place: Any = {"score": score, "method": label, "timesteps": str(t)}
                rows.append(Row("covariance_error", value, error, **place))
    CovarianceErrors(job.folder).save(Results(rows))
    job.note(machine=machine_class(job))
