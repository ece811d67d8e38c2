"""Weights of trajectories: constant where the model is exact, of mean 1 anywhere."""

from math import log, pi
from typing import Any

import numpy as np
import pytest
import torch

from ocm_core import covariance
from ocm_core.diffusion import basis as bases
from ocm_core.diffusion import schedule as schedules
from ocm_core.diffusion import timesteps as rules
from ocm_core.diffusion.gaussian import Correlated, Decoder, Diagonal, full
from ocm_core.diffusion.kernels import Kernel
from ocm_core.diffusion.kernels.ddim import Ddim
from ocm_core.diffusion.kernels.ddpm import Ddpm
from ocm_core.diffusion.mixture import Mixture
from ocm_core.diffusion.schedule import q_sample
from ocm_core.diffusion.timesteps import Timesteps
from ocm_core.diffusion.transition import transitions
from ocm_core.errors import OcmError
from ocm_core.likelihood.bound import Likelihood
from ocm_core.rng.noise import NoiseFor, SampleNoise
from ocm_core.sampling.recipe import Recipe
from ocm_core.sampling.start import DataGaussian
from ocm_core.sampling.weights import (
    Importance,
    WeighedSamples,
    WeighingStepper,
    forward_trajectory,
    weigh,
)
from ocm_core.schema.experiment import Order
from tests.core.doubles import PAIR, exact

SCHEDULE = schedules.linear(1000)
STD, COUNT = 0.5, 2000
ONE = Mixture(torch.zeros(1, 2, dtype=torch.float64), STD)
WIDE, DRAW = Mixture(PAIR.means, 0.6), torch.Generator().manual_seed(0)
MODEL, DATA = exact(PAIR, SCHEDULE), exact(ONE, SCHEDULE)


def noise(count: int = COUNT, use: NoiseFor = NoiseFor.PATHS) -> SampleNoise:
    return SampleNoise(0, range(count), (2,), use=use)


def recipe(method: str, steps: int = 10, **how: Any) -> Recipe:
    kernel = how.pop("kernel", Ddpm())
    return Recipe(rules.even(1000, steps), covariance.build(method), kernel, **how)


def drawn(method: str, model: Any = MODEL, count: int = COUNT, **how: Any) -> WeighedSamples:
    return weigh(recipe(method, **how), model, noise(count))


def forward(method: str, data: Mixture, count: int = COUNT, **how: Any) -> torch.Tensor:
    """Return log w along trajectories of the forward process, from draws of the data."""
    x0 = torch.from_numpy(data.draw(count, np.random.default_rng(0)))
    model, given = exact(data, SCHEDULE), noise(count, NoiseFor.FORWARD)
    return weigh(recipe(method, **how), model, given, x0=x0).log_weights(data.log_density)


def test_the_density_of_a_mixture_is_the_mean_of_its_components() -> None:
    x = torch.tensor([[0.3, -0.2], [1.0, 2.0]], dtype=torch.float64)
    normals = [torch.distributions.Normal(mean, PAIR.std) for mean in PAIR.means]
    expected = torch.stack([n.log_prob(x).sum(-1).exp() for n in normals]).mean(0).log()
    torch.testing.assert_close(PAIR.log_density(x), expected)


@pytest.mark.parametrize("steps", [2, 20])
def test_an_exact_model_has_constant_weights_at_any_number_of_steps(steps: int) -> None:
    """All steps of Gaussian data are Gaussian; what is left is N(0, I) in place of q(x_T)."""
    found = drawn("exact_full", DATA, steps=steps).importance(ONE.log_density)
    assert found.ess > 0.9999 and abs(found.log_z) < 1e-3
    assert float(found.weights.sum()) == pytest.approx(1.0)


def test_log_z_is_that_of_the_density() -> None:
    """With half of the deviation and a factor of 7, for which the model was not made."""

    def log_density(x: torch.Tensor) -> torch.Tensor:
        return log(7) - 2 * x.square().sum(1) / STD**2

    found = drawn("exact_diag", DATA).importance(log_density)
    assert abs(found.log_z - log(7 * 2 * pi * STD**2 / 4)) < 4 * found.log_z_error < 0.3
    # w ∝ e^{-3r/2}, r = x²/σ² exponential: E[w]² / E[w²] = (1/4)² / (1/7)
    assert found.ess == pytest.approx(7 / 16, abs=4 * found.ess_error)


POINTS = torch.from_numpy(PAIR.draw(500, np.random.default_rng(1)))
HOW: list[tuple[str, dict[str, Any]]] = [
    ("exact_full", {}),
    ("rademacher", {"steps": 40}),
    ("beta", {"steps": 40}),
    ("exact_full", {"kernel": Ddim(eta=0.9), "steps": 40}),
    ("exact_full", {"start": DataGaussian.of(POINTS)}),
]


@pytest.mark.parametrize(("method", "how"), HOW)
def test_the_mean_weight_is_one_for_the_density_of_the_data(method: str, how: Any) -> None:
    found = drawn(method, **how).importance(PAIR.log_density)
    assert abs(found.log_z) < 4 * found.log_z_error < 0.5
    assert 0.05 < found.ess < 1.0


@pytest.mark.parametrize("order", [2, 3])
def test_steps_that_remember_others_have_densities_too(order: Order) -> None:
    found = drawn("exact_diag", DATA, order=order, steps=5).importance(ONE.log_density)
    assert abs(found.log_z) < 4 * found.log_z_error < 0.5


@pytest.mark.parametrize("method", ["beta", "beta_tilde", "exact_diag"])
def test_the_path_kl_of_gaussian_data_is_the_sum_over_steps(method: str) -> None:
    """Of variances only: the means of an exact score are those of q(x_s | x_t)."""
    steps = transitions(SCHEDULE, recipe(method).timesteps)
    alpha_bar, b = SCHEDULE.marginal(1000)
    ratios = [alpha_bar * STD**2 + b]
    for step in steps:
        c = STD**2 * step.b_t / (step.alpha_bar_t * STD**2 + step.b_t)
        exactly = Ddpm().floor(step) + Ddpm().gain(step) * c
        chosen = {"beta": step.b_st, "beta_tilde": step.beta_tilde, "exact_diag": exactly}[method]
        ratios.append(exactly / (chosen or SCHEDULE.beta_tilde(1, 2)))
    expected = sum(ratio - 1 - log(ratio) for ratio in ratios)  # half of it in each dimension
    found = forward(method, ONE)
    error = float(found.std()) / COUNT**0.5
    assert float(found.mean()) == pytest.approx(expected, abs=4 * error + 1e-4)
    assert error < 0.1 * expected + 1e-4


@pytest.mark.parametrize("method", ["beta", "exact_diag"])
def test_the_path_kl_is_the_bound_less_the_entropy(method: str) -> None:
    chosen, x0 = recipe(method), torch.from_numpy(PAIR.draw(4000, np.random.default_rng(2)))
    likelihood = Likelihood(MODEL, {method: chosen.method}, Decoder(None, variance="method"))
    given = {"even": chosen.timesteps}
    bound = likelihood.bounds(given, x0, lambda t: SampleNoise(t, range(4000), (2,)))[0]
    above = bound["even", method].terms.double().sum(0) + PAIR.log_density(x0)
    found = forward(method, PAIR, 4000)
    error = float((above.var() + found.var()).sqrt()) / 4000**0.5
    assert float(found.mean()) == pytest.approx(float(above.mean()), abs=4 * error)
    assert found.std() < above.std()  # which is why the stage does not take the bound


def isotropic(timesteps: Timesteps) -> torch.Tensor:
    """1 - Γ_t = (ᾱ_t / b_t) E tr Cov[x_0 | x_t] / d, in closed form at each point."""
    x0, table = torch.from_numpy(WIDE.draw(COUNT, np.random.default_rng(3))), torch.zeros(1001)
    for t in timesteps:
        alpha_bar, b = SCHEDULE.marginal(t)
        one = torch.ones(len(x0), 1, dtype=torch.float64)
        x = q_sample(x0, torch.randn(x0.shape, generator=DRAW, dtype=torch.float64), alpha_bar, b)
        _, posterior = WIDE.posterior(x, alpha_bar * one, b * one)
        table[t] = alpha_bar / b * posterior.diagonal(dim1=1, dim2=2).mean()
    return table


@pytest.mark.parametrize(
    ("method", "least", "most"), [("analytic", -1.3, -0.8), ("exact_full", -2.4, -1.7)]
)
def test_path_kl_falls_with_the_steps_as_the_covariance_says(
    method: str, least: float, most: float
) -> None:
    """With an isotropic covariance as 1/K, with the whole one as 1/K²."""
    counts, found = [20, 40, 80], []
    x0 = torch.from_numpy(WIDE.draw(COUNT, np.random.default_rng(0)))
    for steps in counts:
        chosen = recipe(method, steps)
        model = exact(WIDE, SCHEDULE, moments=isotropic(chosen.timesteps))
        given = noise(COUNT, NoiseFor.FORWARD)
        log_w = weigh(chosen, model, given, x0=x0).log_weights(WIDE.log_density)
        # E_q[1 / w] = 1: the same mean as of log w, with less noise where p is near q
        found.append(float((torch.exp(-log_w) - 1 + log_w).mean()))
    slope = np.polyfit(np.log(counts), np.log(found), 1)[0]
    assert least < slope < most


def test_steps_are_those_of_samples_but_for_the_last_noise() -> None:
    chosen = recipe("exact_diag", 5)
    seen: list[torch.Tensor] = []
    plain = chosen.draw(MODEL, noise(3), watch=lambda t, x: seen.append(x))
    again: list[torch.Tensor] = []
    stepper = WeighingStepper(chosen, SCHEDULE)
    noisy = chosen.draw(MODEL, noise(3), watch=lambda t, x: again.append(x), stepper=stepper)
    assert all(map(torch.equal, seen, again))
    moved = (noisy.x - plain.x).abs()
    assert 0 < moved.max() < 5 * SCHEDULE.b[1] ** 0.5


def test_a_covariance_without_variance_takes_a_given_one() -> None:
    variance = torch.tensor([[0.0, 2.0]])
    assert Diagonal(variance).filled(0.5).variance.tolist() == [[0.5, 2.0]]
    basis = bases.build("dct", torch.zeros(1, 1, 1, 2))
    correlated = Correlated(basis, variance.view(1, 1, 1, 2))
    assert correlated.filled(0.5).spectrum.flatten().tolist() == [0.5, 2.0]
    scaled = Correlated(basis, torch.full((1, 1, 1, 2), 4.0), variance.view(1, 1, 1, 2))
    found = scaled.filled(0.5).diagonal(torch.zeros(1, 1, 1, 2))
    torch.testing.assert_close(found.flatten(), torch.tensor([0.5, 8.0]))
    matrix = torch.tensor([[[1.0, 1.0], [1.0, 1.0]]])
    torch.testing.assert_close(
        full(matrix).filled(0.5).matrix(), matrix + torch.tensor([[[0.25, -0.25], [-0.25, 0.25]]])
    )


def test_a_trajectory_has_the_marginals_of_the_forward_process() -> None:
    x0 = torch.full((COUNT, 2), 2.0)
    path = [*forward_trajectory(SCHEDULE, (300, 600), x0, noise())]
    assert torch.equal(path[0], x0)
    for x, t in zip(path[1:], (300, 600), strict=True):
        alpha_bar, b = SCHEDULE.marginal(t)
        assert float(x.mean()) == pytest.approx(2 * alpha_bar**0.5, abs=0.1)
        assert float(x.var()) == pytest.approx(b, rel=0.1)


@pytest.mark.parametrize(
    ("method", "kernel", "said"),
    [
        ("delta", Ddim(), "ddim steps of method 'delta' have no variance"),
        ("lanczos", Ddpm(), "method 'lanczos' has no density"),
    ],
)
def test_what_has_no_density_is_refused(method: str, kernel: Kernel, said: str) -> None:
    with pytest.raises(OcmError, match=said):
        drawn(method, kernel=kernel)


def test_errors_are_those_of_leaving_one_sample_out() -> None:
    log_w = 0.7 * torch.randn(2000, generator=DRAW, dtype=torch.float64)
    found, w = Importance.of(log_w), log_w.exp()
    total, squares, rest = w.sum() - w, w.square().sum() - w.square(), len(w) - 1
    for error, without in (
        (found.ess_error, total**2 / squares / rest),
        (found.log_z_error, (total / rest).log()),
    ):
        expected = float((without - without.mean()).square().sum() * rest / len(w)) ** 0.5
        assert error == pytest.approx(expected, rel=0.03)


def test_a_density_that_is_none_is_refused() -> None:
    found = drawn("exact_diag", DATA, count=5)
    with pytest.raises(OcmError, match=r"log_density: shape \(5, 2\) for 5 samples"):
        found.importance(lambda x: x)
    for value in (float("nan"), float("-inf")):
        with pytest.raises(OcmError, match="NaN, or all of density zero"):
            Importance.of(torch.full((5,), value))
    half = Importance.of(torch.tensor([0.0, 0.0, -torch.inf, -torch.inf]).double())
    assert (half.ess, half.log_z) == pytest.approx((0.5, -log(2)))
