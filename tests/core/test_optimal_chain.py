"""F[s, t] and the chain of least bound that follows from it."""

import numpy as np
import torch

from ocm_core import covariance
from ocm_core.diffusion import chains, schedule
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
    return likelihood().pair_terms(list(grid), X0, noise_at)


def test_pair_terms_are_the_terms_of_every_chain():
    found = costs()
    chain = chains.even(T, 5)
    bounds, _ = likelihood().bounds({"K": chain}, X0, noise_at)
    for name, table in found.items():
        expected = bounds["K", name].terms[:-1].double().mean(1)
        ours = [table[s, t] for s, t in reversed(list(chains.downward(chain)))]
        torch.testing.assert_close(torch.stack(ours), expected)


def test_optimal_chain_has_the_least_bound():
    table = costs()["exact_diag"].numpy()

    def bound(chain):
        return sum(table[s, t] for s, t in chains.downward(chain))

    for length in (2, 5, 10):
        best = bound(chains.optimal(table, length))
        assert best <= bound(chains.even(T, length))
        assert best < bound(chains.dit(T, length)) + 1e-12


def test_a_grid_keeps_the_chain_on_it():
    grid = [1, 5, 10, 20, 30, T]
    chain = chains.optimal(costs(grid)["exact_diag"].numpy(), 4)
    assert set(chain) <= set(grid) and chain[-1] == T and len(chain) == 4
