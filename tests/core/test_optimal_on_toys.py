"""On the toys, as parametrised: timesteps from training points, bounds of test points."""

from __future__ import annotations

from math import sqrt

import pytest
import torch
from torch import Tensor

from ocm_core.covariance import build_all
from ocm_core.datasets.mixture import MixtureData
from ocm_core.diffusion import timesteps as rules
from ocm_core.diffusion.gaussian import Decoder
from ocm_core.diffusion.mixture import mixture
from ocm_core.diffusion.timesteps import Timesteps
from ocm_core.likelihood.bound import Likelihood
from ocm_core.params.compose import compose
from ocm_core.rng.noise import NoiseFor, SampleNoise
from ocm_core.rng.streams import Stream, stream
from ocm_core.schema.block import require
from ocm_core.schema.experiment import Experiment
from ocm_core.stages import likelihood as likelihood_stage
from ocm_core.stages._networks import new_denoiser, new_score

COUNT = 300


def points(experiment: Experiment, seed: int) -> Tensor:
    assert isinstance(experiment.data, MixtureData)
    drawn = mixture(experiment.data).draw(COUNT, stream(Stream.MIXTURE_POINTS, seed))
    return torch.from_numpy(drawn).float()


def noise_at(use: NoiseFor, t: int = 0) -> SampleNoise:
    return SampleNoise(0, range(COUNT), (2,), "cpu", use, t)


@pytest.mark.parametrize("name", ["toy_mog9", "toy_mog40"])
def test_the_optimal_bound_is_at_or_below_the_even_one(name: str) -> None:
    """With the exact score: every method that needs no training, every K, in pairs of points."""
    experiment = compose(name)
    settings = likelihood_stage.STAGE.settings(experiment)
    assert [*settings.timesteps] == ["even", "optimal"]
    costs = require(experiment.train.timesteps)
    assert costs.methods == settings.methods
    untrained = [m for m in settings.methods if experiment.methods[m].needs == "nothing"]
    methods = {name: build_all(experiment.methods)[name] for name in untrained}
    model = new_denoiser(experiment, new_score(experiment, "exact"))
    likelihood = Likelihood(model, methods, Decoder(None, variance=costs.decoder_variance))
    grid = rules.grid(costs.grid, model.schedule, costs.points)
    found = likelihood.step_costs(
        grid, points(experiment, 1), lambda t: noise_at(NoiseFor.TIMESTEPS)
    )
    cases: dict[tuple[str, str], Timesteps] = {}
    for label, table in found.items():
        best = table.optimal()
        for k in settings.nfe:
            cases[f"even {k}", label] = rules.even(model.schedule.steps, k)
            cases[f"optimal {k}", label] = best[k]
    test = points(experiment, 2)
    bounds, _ = likelihood.bounds_on(cases, test, lambda t: noise_at(NoiseFor.LIKELIHOOD, t))
    for label in untrained:
        for k in settings.nfe:
            best, even = (bounds[f"{timesteps} {k}", label] for timesteps in ("optimal", "even"))
            gap = (best.bits_per_dim - even.bits_per_dim).sum(0)
            assert gap.mean() <= gap.std() / sqrt(COUNT), (label, k)
