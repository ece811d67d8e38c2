"""Measure how far the covariance of a reverse step is from the exact one, timestep by timestep."""

from dataclasses import replace
from typing import Any, cast

import torch

from ocm_core.covariance import class_of
from ocm_core.covariance.interface import NON_NEGATIVE, ReverseStep
from ocm_core.datasets.mixture import MixtureData
from ocm_core.diffusion.kernels.ddpm import Ddpm
from ocm_core.diffusion.mixture import mixture
from ocm_core.diffusion.schedule import q_sample
from ocm_core.diffusion.transition import transition
from ocm_core.metrics import mean_and_error
from ocm_core.results.table import Row
from ocm_core.rng.noise import NoiseFor, SampleNoise
from ocm_core.schema.block import Choices, Count, Seed, SetSize
from ocm_core.stages import Experiment, Job, Params
from ocm_core.stages._evaluation import evaluated, evaluation
from ocm_core.stages._results import ResultsTable, machine_class
from ocm_core.stages.encode import open_split

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


STAGE = evaluation(
    __name__,
    CovarianceErrorParams,
    "sample.samplers",
    methods=ddpm_methods,
    passes=lambda experiment, settings: len(settings.times),
    check=lambda experiment, settings: [NO_MIXTURE] * (experiment.data.kind != "mixture"),
)


class CovarianceErrors(ResultsTable):
    """Rows of the measure `covariance_error`."""


def run(job: Job) -> None:
    """Compare every method with the closed form, at the same noisy points."""
    settings, rows = STAGE.settings(job.experiment), list[Row]()
    truth = mixture(cast(MixtureData, job.experiment.data))
    # in float64: at large t the variances agree to more digits than float32 has
    x0 = torch.from_numpy(open_split(job, "test").all())[: settings.points].to(job.device).double()
    whose = (settings.seed, range(len(x0)), tuple(x0.shape[1:]), job.device)
    one = torch.ones(len(x0), 1, dtype=torch.float64)
    for model in evaluated(job):
        heads = {label: head.double() for label, head in model.denoiser.heads.items()}
        double = replace(model.denoiser, network=model.denoiser.network.double(), heads=heads)
        for t in job.progress(settings.times, f"covariance error, {model.score} score"):
            noise = SampleNoise(*whose, NoiseFor.COVARIANCE_ERROR, t)
            place = transition(double.schedule, t - 1, t)
            step = ReverseStep(place, Ddpm(), NON_NEGATIVE)
            x = q_sample(x0, noise.normal(), *double.schedule.marginal(t))
            # β̃ + a² diag Cov[x_0 | x_t]
            _, posterior = truth.posterior(x.cpu(), place.alpha_bar_t * one, place.b_t * one)
            exact = step.added(posterior.diagonal(dim1=1, dim2=2)).to(x.device)
            with torch.no_grad():
                seen = double.predict(x, t)
            for label, method in model.methods.items():
                found = method.step_covariance(seen, noise)(step).diagonal(x)
                errors = mean_and_error(((found - exact) ** 2).mean(1))
                where: Any = {"score": model.score, "method": label, "timesteps": str(t)}
                rows.append(Row("covariance_error", *errors, **where))
    CovarianceErrors(job.folder).save(rows)
    job.note(machine=machine_class(job))
