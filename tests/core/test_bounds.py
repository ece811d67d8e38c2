"""Bounds against entropies; F[s, t], and the timesteps of least bound that follow from it."""

from dataclasses import replace
from math import e, log, pi, sqrt
from typing import get_args

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from ocm_core import covariance
from ocm_core.datasets.mixture import MixtureData
from ocm_core.diffusion import schedule as schedules
from ocm_core.diffusion import timesteps as rules
from ocm_core.diffusion.gaussian import Decoder
from ocm_core.diffusion.mixture import Mixture, mixture
from ocm_core.diffusion.schedule import Schedule
from ocm_core.diffusion.timesteps import StepCosts, Timesteps
from ocm_core.likelihood.bound import Likelihood
from ocm_core.networks.of_experiment import new_denoiser, new_score
from ocm_core.params.compose import compose
from ocm_core.rng.noise import NoiseFor, SampleNoise
from ocm_core.rng.streams import Stream, stream
from ocm_core.schema.block import require
from ocm_core.schema.experiment import Experiment
from ocm_core.schema.timesteps import DecoderVariance
from ocm_core.stages import likelihood as likelihood_stage
from tests.core.doubles import PAIR, Replay, exact

T = 60
SIGNS = torch.tensor([[1.0], [1.0], [-1.0], [-1.0]], dtype=torch.float64)
NOISE = torch.tensor([[1.0], [-1.0], [1.0], [-1.0]], dtype=torch.float64)

SCHEDULES = st.sampled_from([schedules.linear(T), schedules.cosine(T)])
CHAINS = st.sets(st.integers(1, T), min_size=1, max_size=8).map(lambda found: tuple(sorted(found)))
STDS = st.floats(0.02, 3.0)  # from below √β̃_{1:2}, which a decoder may borrow, to above


def gap(schedule: Schedule, timesteps: Timesteps, std: float, method: str) -> float:
    """The bound over x_0 ~ N(0, σ²) and all noise, in nats, above the entropy.

    The score of Gaussian data is linear, so every term is quadratic in (x_0, ε), and four points
    with the right moments give its expectation exactly: this is no Monte-Carlo estimate.
    """
    model = exact(Mixture(torch.zeros(1, 1, dtype=torch.float64), std), schedule)
    decoder = Decoder(None, variance="method")
    likelihood = Likelihood(model, {method: covariance.build(method)}, decoder)
    found, _ = likelihood.bounds({"K": timesteps}, std * SIGNS, lambda t: Replay([NOISE]))
    return float(found["K", method].terms.double().sum(0).mean()) - 0.5 * log(2 * pi * e * std**2)


@given(SCHEDULES, CHAINS, STDS, st.sampled_from(["beta", "beta_tilde"]))
def test_the_bound_of_any_timesteps_is_at_least_the_entropy(
    schedule: Schedule, timesteps: Timesteps, std: float, method: str
) -> None:
    assert gap(schedule, timesteps, std, method) >= -1e-4


@given(SCHEDULES, CHAINS, STDS)
def test_with_exact_covariances_only_the_end_of_the_timesteps_is_lost(
    schedule: Schedule, timesteps: Timesteps, std: float
) -> None:
    """KL(q(x_t) ‖ N(0, 1)) at the last timestep, where x_t has the variance ᾱ_t σ² + b_t."""
    alpha_bar, b = schedule.marginal(timesteps[-1])
    variance = alpha_bar * std**2 + b
    lost = 0.5 * (variance - 1.0 - log(variance))
    assert gap(schedule, timesteps, std, "exact_diag") == pytest.approx(lost, abs=1e-4, rel=1e-4)


def test_one_step_from_pure_noise_is_optimal_where_the_decoder_is_exact() -> None:
    """From x_T a Gaussian's exact decoder loses the prior alone, and the fixed one much more."""
    std, levels = 0.5, schedules.linear(T)
    model = exact(Mixture(torch.zeros(1, 1, dtype=torch.float64), std), levels)
    likelihood = Likelihood(model, {"exact": covariance.build("exact_diag")}, Decoder(None))
    found = likelihood.step_costs([*range(1, T + 1)], std * SIGNS, lambda t: Replay([NOISE]))
    entropy = 0.5 * log(2 * pi * e * std**2)
    own, fixed = (found["exact"].decoded(v) for v in ("method", "fixed"))
    alpha_bar, b = levels.marginal(T)
    lost = 0.5 * (alpha_bar * std**2 + b - 1.0 - log(alpha_bar * std**2 + b))
    assert own.optimal()[1] == (T,)
    assert own.cost((T,)) - entropy == pytest.approx(lost, abs=1e-4)
    assert fixed.cost(fixed.optimal()[1]) - entropy > 0.3


X0 = torch.from_numpy(PAIR.draw(64, np.random.default_rng(0)))


def pair_likelihood() -> Likelihood:
    methods = {name: covariance.build(name) for name in ("exact_diag", "beta")}
    return Likelihood(exact(PAIR, schedules.linear(T)), methods, Decoder(None))


def noise_at(t: int) -> SampleNoise:
    return SampleNoise(t, range(len(X0)), (2,))


def costs(grid: list[int]) -> dict[str, StepCosts]:
    return pair_likelihood().step_costs(grid, X0, noise_at)


def test_step_costs_are_the_terms_of_every_timesteps() -> None:
    found = costs([*range(1, T + 1)])
    for timesteps in (rules.even(T, 5), (1, 4, 20), (T,)):
        bounds, _ = pair_likelihood().bounds({"K": timesteps}, X0, noise_at)
        for name, table in found.items():
            expected = bounds["K", name].terms.double().sum(0).mean()
            assert table.cost(timesteps) == pytest.approx(float(expected), rel=1e-6)


@pytest.mark.parametrize("own", ["fixed", "method"])
def test_costs_with_either_decoder_are_the_terms_of_its_bound(own: DecoderVariance) -> None:
    methods, levels = pair_likelihood().methods, schedules.linear(T)
    likelihood = Likelihood(exact(PAIR, levels), methods, Decoder(None, variance=own))
    tables = likelihood.step_costs([*range(1, T + 1)], X0, noise_at)
    for variance in get_args(DecoderVariance):
        costs = {name: table.decoded(variance) for name, table in tables.items()}
        cases = {("best", name): table.optimal()[4] for name, table in costs.items()}
        decoders = dict.fromkeys(cases, variance)
        bounds, _ = likelihood.bounds_on(cases, X0, noise_at, decoders=decoders)
        for name, table in costs.items():
            terms = bounds["best", name].terms.double().mean(1)
            first = table.timesteps.index(cases["best", name][0])
            assert table.steps[0, first] == pytest.approx(float(terms[0]), rel=1e-6)
            total = table.cost(cases["best", name])
            assert total == pytest.approx(float(terms.sum()), rel=1e-6)
            assert total <= table.cost(rules.even(T, 4))
    assert all((t.steps == t.decoded(own).steps).all() for t in tables.values())


def test_bounds_with_both_decoders_in_one_pass_are_those_of_each_alone() -> None:
    visited, name = (4, 20, T), "exact_diag"
    cases = {("fixed", name): visited, ("method", name): visited}
    both, _ = pair_likelihood().bounds_on(
        cases, X0, noise_at, decoders={("method", name): "method"}
    )
    for (variance, _), bound in both.items():
        alone = replace(pair_likelihood(), decoder=Decoder(None, variance=variance))
        expected, _ = alone.bounds({"K": visited}, X0, noise_at)
        assert torch.equal(bound.terms, expected["K", name].terms)
    assert (both["method", name].terms[0] != both["fixed", name].terms[0]).all()


def test_bits_per_dimension_are_of_the_decoder_the_steps_and_the_prior() -> None:
    found = pair_likelihood().bounds({"K": (1, 4, 20)}, X0, noise_at)[0]["K", "beta"]
    decoder, first, second, prior = found.terms.double() / (2 * log(2))
    expected = torch.stack([decoder, first + second, prior])
    torch.testing.assert_close(found.bits_per_dim, expected)
    assert (prior > 1e-3).all()


def test_a_grid_keeps_the_timesteps_on_it() -> None:
    grid = [1, 5, 10, 20, 30, T]
    found = costs(grid)["exact_diag"].optimal()
    assert {*found} == {1, 2, 3, 4, 5, 6} and found[6] == tuple(grid)
    assert all({*timesteps} <= {*grid} for timesteps in found.values())


def points(experiment: Experiment, seed: int) -> Tensor:
    assert isinstance(experiment.data, MixtureData)
    drawn = mixture(experiment.data).draw(300, stream(Stream.MIXTURE_POINTS, seed))
    return torch.from_numpy(drawn).float()


@pytest.mark.parametrize("name", ["toy_mog9", "toy_mog40"])
def test_on_the_toys_the_optimal_bound_is_at_or_below_the_even_one(name: str) -> None:
    experiment = compose(name)
    settings = likelihood_stage.STAGE.settings(experiment)
    assert [*settings.timesteps] == ["even", "optimal"]
    how = require(experiment.train.timesteps)
    assert how.methods == settings.methods
    untrained = [m for m in settings.methods if experiment.methods[m].needs == "nothing"]
    methods = {name: covariance.build_all(experiment.methods)[name] for name in untrained}
    model = new_denoiser(experiment, new_score(experiment, "exact"))
    likelihood = Likelihood(model, methods, Decoder(None, variance=how.decoder_variance))
    train, test = points(experiment, 1), points(experiment, 2)

    def noise(use: NoiseFor, t: int = 0) -> SampleNoise:
        return SampleNoise(0, range(300), (2,), "cpu", use, t)

    grid = rules.grid(how.grid, model.schedule, how.points)
    tables = likelihood.step_costs(grid, train, lambda t: noise(NoiseFor.TIMESTEPS))
    cases: dict[tuple[str, str], Timesteps] = {}
    for label, table in tables.items():
        best = table.optimal()
        for k in settings.nfe:
            cases[f"even {k}", label] = rules.even(model.schedule.steps, k)
            cases[f"optimal {k}", label] = best[k]
    bounds, _ = likelihood.bounds_on(cases, test, lambda t: noise(NoiseFor.LIKELIHOOD, t))
    for label in untrained:
        for k in settings.nfe:
            optimal, even = (bounds[f"{rule} {k}", label] for rule in ("optimal", "even"))
            more = (optimal.bits_per_dim - even.bits_per_dim).sum(0)
            assert more.mean() <= more.std() / sqrt(300), (label, k)
