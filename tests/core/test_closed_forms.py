"""Data for which everything is known: a Gaussian, and a mixture."""

import numpy as np
import pytest
import torch
from torch.distributions import Categorical, Independent, MixtureSameFamily, Normal

from ocm_core import covariance
from ocm_core.diffusion import schedule
from ocm_core.diffusion import timesteps as rules
from ocm_core.diffusion.gaussian import Decoder
from ocm_core.diffusion.mixture import Mixture, mixture
from ocm_core.likelihood.bound import Likelihood
from ocm_core.networks.mixture import MixtureScore
from ocm_core.params.compose import compose
from ocm_core.rng.noise import SampleNoise
from tests.core.doubles import PAIR, Ddim, Ddpm, ancestral, exact

T = 1000


def denoiser(mixture):
    return exact(mixture, schedule.linear(T))


GAUSSIAN = Mixture(torch.zeros(1, 2, dtype=torch.float64), 0.7)


def draw(model, name, length, kernel, count=4000, seed=1):
    method, noise = covariance.build(name), SampleNoise(seed, range(count), (2,))
    return ancestral(model, method, rules.even(T, length), noise, kernel=kernel).x.double()


@pytest.mark.parametrize("length", [2, 5, 20])
@pytest.mark.parametrize("name", ["exact_diag", "exact_full"])
@pytest.mark.parametrize("kernel", [Ddpm(), Ddim(eta=0.0), Ddim(eta=0.5)])
def test_gaussian_samples_have_the_right_covariance_at_any_number_of_steps(kernel, name, length):
    """With the exact covariance every step is exact, but for x_1, whose mean is shown."""
    x = draw(denoiser(GAUSSIAN), name, length, kernel)
    standard_error = 0.49 * np.sqrt(2 / len(x))
    assert np.abs(np.cov(x.numpy().T) - 0.49 * np.eye(2)).max() < 5 * standard_error


def test_fixed_variances_are_wrong_where_the_exact_one_is_right():
    model = denoiser(GAUSSIAN)
    too_small = draw(model, "beta_tilde", 5, Ddpm()).var()
    too_large = draw(model, "beta", 5, Ddpm()).var()
    assert too_small < 0.44 and too_large > 0.54


def test_correlated_mixture_wants_the_full_matrix():
    model, truth = denoiser(PAIR), np.array([[1.09, -0.5], [-0.5, 0.34]])
    error = {
        name: np.abs(np.cov(draw(model, name, 5, Ddpm()).numpy().T) - truth).max()
        for name in ("exact_diag", "exact_full")
    }
    assert error["exact_full"] < error["exact_diag"]


def log_density(mixture, x, alpha_bar, b):
    """By torch's own distributions."""
    means = alpha_bar.sqrt()[..., None] * mixture.means
    std = (alpha_bar * mixture.std**2 + b).sqrt()
    components = Independent(Normal(means, std[..., None]), 1)
    return MixtureSameFamily(Categorical(torch.ones(means.shape[:2])), components).log_prob(x)


def gaps(mixture, lengths, name="exact_diag"):
    """How far the bound is above the entropy of the same points."""
    x0 = torch.from_numpy(mixture.draw(400, np.random.default_rng(0)))
    zero = torch.zeros(len(x0), 1, dtype=torch.float64)
    entropy = -float(log_density(mixture, x0, zero + 1.0, zero).mean())
    decoder, timesteps = Decoder(None, variance="method"), {n: rules.even(T, n) for n in lengths}
    likelihood = Likelihood(denoiser(mixture), {name: covariance.build(name)}, decoder)
    found, _ = likelihood.bounds(timesteps, x0, lambda t: SampleNoise(t, range(len(x0)), (2,)))
    return [float(found[n, name].terms.sum(0).mean()) - entropy for n in lengths]


def test_mixture_bound_approaches_the_entropy_as_the_timesteps_grows():
    few, more, many = gaps(PAIR, [5, 25, 1000])
    assert few > more > many > -0.05
    assert many < 0.1
    assert gaps(PAIR, [25], "beta_tilde")[0] > more


def test_a_grid_of_modes_is_centred():
    data = compose("toy_mog9").data
    found, distances = mixture(data).means, data.layout.spacing / data.scale
    axis = torch.tensor([-distances, 0.0, distances], dtype=torch.float64)
    torch.testing.assert_close(found, torch.cartesian_prod(axis, axis))
    assert PAIR.variance == pytest.approx((1.0 + 0.25) / 2 + 0.09)


@pytest.mark.parametrize("t", [1, 10, 300, 1000])
def test_mixture_posterior_by_brute_force(t):
    """E and Cov of x_0 given x_t against self-normalised importance sampling over the prior."""
    levels = schedule.linear(T)
    alpha_bar, b = float(levels.alpha_bar[t]), float(levels.b[t])
    source = np.random.default_rng(3)
    x = torch.tensor(np.sqrt(alpha_bar) * PAIR.draw(1, source) + np.sqrt(b) * 0.5)
    prior = torch.from_numpy(PAIR.draw(400_000, source))
    weights = torch.softmax(-0.5 * ((x - np.sqrt(alpha_bar) * prior) ** 2).sum(1) / b, dim=0)
    mean = weights @ prior
    spread = prior - mean
    ones = torch.ones(1, 1, dtype=torch.float64)
    ours_mean, ours_covariance = PAIR.posterior(x, alpha_bar * ones, b * ones)
    torch.testing.assert_close(ours_mean[0], mean, rtol=0.02, atol=0.02)
    expected = (weights[:, None] * spread).T @ spread
    torch.testing.assert_close(ours_covariance[0], expected, rtol=0.05, atol=0.01)


def test_true_score_is_the_gradient_of_the_log_density():
    levels = schedule.linear(T)
    model = MixtureScore(PAIR, levels)
    x = torch.randn(50, 2, dtype=torch.float64, requires_grad=True)
    t = torch.randint(1, T + 1, (50,))
    alpha_bar = torch.from_numpy(levels.alpha_bar)[t][:, None]
    b = torch.from_numpy(levels.b)[t][:, None]
    (score,) = torch.autograd.grad(log_density(PAIR, x, alpha_bar, b).sum(), x)
    eps = model(x, t.float())
    torch.testing.assert_close(eps, -b.sqrt() * score, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("cdf", ["exact", "tanh"])
@pytest.mark.parametrize("levels", [17, 256])
def test_binned_likelihood_sums_to_one(levels, cdf):
    grid = torch.linspace(-1, 1, levels, dtype=torch.float64)[:, None]
    mean = torch.tensor([[0.3, -1.2, 0.999]], dtype=torch.float64).expand(levels, 3)
    variance = torch.tensor([[0.05, 0.3, 0.01]], dtype=torch.float64).expand(levels, 3)
    masses = Decoder(levels, cdf).log_likelihood(grid.expand(levels, 3), mean, variance).exp()
    torch.testing.assert_close(masses.sum(0), torch.ones(3, dtype=torch.float64), atol=1e-6, rtol=0)


def test_the_published_mass_of_a_bin_has_a_floor_and_the_exact_one_none():
    given = torch.tensor([[0.5], [-0.5], [1e-4]])  # x_0, mean, variance
    floored, exact = (float(Decoder(256, cdf).log_likelihood(*given)) for cdf in ("tanh", "exact"))
    assert floored == pytest.approx(np.log(1e-12), rel=1e-6) and -np.inf < exact < -4000
