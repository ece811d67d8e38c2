"""On the toys, as their parameters have it: chains from training points, bounds of test points."""

from __future__ import annotations

from math import sqrt

import pytest
import torch
from torch import Tensor

from ocm_core.artifacts.score import new_denoiser, new_score
from ocm_core.covariance import build_all
from ocm_core.diffusion import chains
from ocm_core.diffusion.chains import Chain
from ocm_core.diffusion.gaussian import Decoder
from ocm_core.diffusion.mixture import mixture
from ocm_core.likelihood.bound import Likelihood
from ocm_core.params.compose import compose
from ocm_core.rng.noise import SampleNoise, Use
from ocm_core.rng.streams import Purpose, stream
from ocm_core.schema.block import require
from ocm_core.schema.datasets import MixtureData
from ocm_core.schema.experiment import Experiment

COUNT = 300


def points(experiment: Experiment, seed: int) -> Tensor:
    assert isinstance(experiment.data, MixtureData)
    drawn = mixture(experiment.data).draw(COUNT, stream(Purpose.MIXTURE_POINTS, seed))
    return torch.from_numpy(drawn).float()


def noise_at(use: Use, t: int = 0) -> SampleNoise:
    return SampleNoise(0, range(COUNT), (2,), "cpu", use, t)


@pytest.mark.parametrize("name", ["toy_mog9", "toy_mog40"])
def test_the_optimal_chain_is_at_or_below_the_even_one(name: str) -> None:
    """With the true score: every method that needs no training, every K, in pairs of points."""
    experiment = compose(name)
    settings = require(experiment.evaluate.likelihood)
    assert [*settings.chains] == ["ddpm", "ddpm_optimal"]
    costs = require(experiment.evaluate.chains)
    assert costs.methods == settings.methods
    untrained = [m for m in settings.methods if experiment.methods[m].needs == "nothing"]
    methods = {name: build_all(experiment.methods)[name] for name in untrained}
    model = new_denoiser(experiment, new_score(experiment, "true"))
    likelihood = Likelihood(model, methods, Decoder(None, variance=costs.decoder_variance))
    grid = chains.grid(costs.grid, model.schedule, costs.points)
    found = likelihood.step_costs(grid, points(experiment, 1), lambda t: noise_at(Use.CHAINS))
    walks: dict[tuple[str, str], Chain] = {}
    for label, table in found.items():
        best = table.optimal()
        for k in settings.steps:
            walks[f"even {k}", label] = chains.even(model.schedule.steps, k)
            walks[f"optimal {k}", label] = best[k]
    test = points(experiment, 2)
    bounds, _ = likelihood.bounds_on(walks, test, lambda t: noise_at(Use.LIKELIHOOD, t))
    for label in untrained:
        for k in settings.steps:
            best, even = (bounds[f"{chain} {k}", label] for chain in ("optimal", "even"))
            gap = (best.bits_per_dim - even.bits_per_dim).sum(0)
            assert gap.mean() <= gap.std() / sqrt(COUNT), (label, k)
