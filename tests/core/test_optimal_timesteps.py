"""F[s, t] and the timesteps of least bound that follow from it."""

import numpy as np
import pytest
import torch

from ocm_core import covariance
from ocm_core.diffusion import schedule
from ocm_core.diffusion import timesteps as rules
from ocm_core.diffusion.denoiser import Denoiser
from ocm_core.diffusion.gaussian import Decoder
from ocm_core.diffusion.mixture import Mixture
from ocm_core.likelihood.bound import Likelihood
from ocm_core.networks.mixture import MixtureScore
from ocm_core.rng.noise import SampleNoise

T, COUNT = 40, 64
MIXTURE = Mixture(torch.tensor([[-1.0, 0.5], [1.0, -0.5]], dtype=torch.float64), 0.3)
X0 = torch.from_numpy(MIXTURE.draw(COUNT, np.random.default_rng(0)))


def likelihood():
    levels = schedule.linear(T)
    model = Denoiser(MixtureScore(MIXTURE, levels), levels)
    methods = {name: covariance.build(name) for name in ("exact_diag", "beta")}
    return Likelihood(model, methods, Decoder(None))


def noise_at(t):
    return SampleNoise(t, range(COUNT), (2,))


def costs(grid=range(1, T + 1)):
    return likelihood().step_costs(list(grid), X0, noise_at)


def test_step_costs_are_the_terms_of_every_timesteps():
    found = costs()
    for timesteps in (rules.even(T, 5), (1, 4, 20), (T,)):
        bounds, _ = likelihood().bounds({"K": timesteps}, X0, noise_at)
        for name, table in found.items():
            expected = bounds["K", name].terms.double().sum(0).mean()
            assert table.cost(timesteps) == pytest.approx(float(expected), rel=1e-6)


def test_bits_per_dimension_are_of_the_decoder_the_steps_and_the_prior():
    found = likelihood().bounds({"K": (1, 4, 20)}, X0, noise_at)[0]["K", "beta"]
    decoder, first, second, prior = found.terms.double() / (2 * np.log(2))
    expected = torch.stack([decoder, first + second, prior])
    torch.testing.assert_close(found.bits_per_dim, expected)
    assert (prior > 1e-3).all()


def test_optimal_timesteps_have_the_least_bound():
    for table in costs().values():
        for length, best in table.optimal().items():
            assert len(best) == length
            if length > 1:
                assert table.cost(best) <= table.cost(rules.even(T, length)) + 1e-12
                assert table.cost(best) <= table.cost(rules.dit(T, length)) + 1e-12


def test_a_grid_keeps_the_timesteps_on_it():
    grid = [1, 5, 10, 20, 30, T]
    found = costs(grid)["exact_diag"].optimal()
    assert {*found} == {1, 2, 3, 4, 5, 6} and found[6] == tuple(grid)
    assert all({*timesteps} <= {*grid} for timesteps in found.values())


def test_a_timesteps_begins_where_the_prior_is_cheap_enough():
    free, dear = np.zeros(4), np.array([np.inf, 9.0, 0.1, 0.0])
    steps = np.array([[0, 1, 1, 5], [0, 0, 1, 2], [0, 0, 0, 1], [0, 0, 0, 0]], dtype=float)
    assert rules.optimal(steps, free, 1) == {1: (1,)}
    assert rules.optimal(steps, dear, 2) == {1: (2,), 2: (2, 3)}
