"""Schedules and timesteps against the published numbers, and the identities that define them."""

from itertools import combinations
from time import process_time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ocm_core.diffusion import schedule
from ocm_core.diffusion import timesteps as rules
from ocm_core.diffusion.transition import transition, transitions
from ocm_core.errors import OcmError
from ocm_core.schema import timesteps as params
from tests.goldens_io import arrays, facts

PUBLISHED = ["linear_1000", "cosine_1000", "cosine_4000"]


def named(tag: str) -> schedule.Schedule:
    kind, steps = tag.split("_")
    return schedule.build(kind, int(steps))


@pytest.mark.parametrize("tag", PUBLISHED)
def test_tables_equal_the_published_ones(tag):
    golden, ours = arrays("schedules"), named(tag)
    np.testing.assert_allclose(ours.betas, golden[f"{tag}/betas"], rtol=0, atol=2e-16)
    np.testing.assert_allclose(ours.alpha_bar, golden[f"{tag}/cum_alphas"], rtol=0, atol=1e-16)
    np.testing.assert_allclose(ours.b, golden[f"{tag}/cum_betas"], rtol=1e-14)

    for row, (s, t) in enumerate(golden[f"{tag}/pairs"]):
        alpha, b = ours.skips_to(int(t))
        found = {"skip_alphas": alpha[s], "skip_betas": b[s], "tilde_beta": ours.beta_tilde(s, t)}
        for key, value in found.items():
            np.testing.assert_allclose(value, golden[f"{tag}/{key}"][row], rtol=1e-14)


RULES = {"linear": rules.even, "quad_ddim": rules.quadratic}
TRAJECTORIES = [
    (RULES[kind], int(steps), int(nfe), expected)
    for key, expected in facts("schedules")["trajectories"].items()
    for kind, steps, nfe in [key.rsplit("_", 2)]
    if kind in RULES
]
TRAJECTORIES += [
    (rules.dit, 1000, int(nfe), [t + 1 for t in expected])
    for nfe, expected in facts("schedules")["respacing"].items()
    if not nfe.startswith("ddim")
]


@pytest.mark.parametrize("rule, steps, nfe, expected", TRAJECTORIES)
def test_timesteps_equal_the_published_ones(rule, steps, nfe, expected):
    assert list(rule(steps, nfe)) == expected


@pytest.mark.parametrize("length", [10, 25, 50, 100, 200, 250])
def test_respaced_variances_equal_dit(length):
    full, upward = schedule.linear(1000), [*rules.downward(rules.dit(1000, length))][::-1]
    betas = [full.skips_to(t)[1][s] for s, t in upward]
    posterior = [full.beta_tilde(s, t) for s, t in upward]
    for ours, key in ((betas, "betas"), (posterior, "posterior_variance")):
        golden = arrays("schedules")[f"dit_respaced_{length}/{key}"]
        np.testing.assert_allclose(ours, golden, rtol=1e-11)


@given(betas=st.lists(st.floats(1e-6, 0.999), min_size=2, max_size=40), data=st.data())
def test_skips_follow_from_their_definition(betas, data):
    ours = schedule.Schedule(np.append(0.0, betas))
    t = data.draw(st.integers(1, ours.steps))
    s = data.draw(st.integers(0, t - 1))
    alpha, b = ours.skips_to(t)
    np.testing.assert_allclose(alpha[s], np.prod(1 - ours.betas[s + 1 : t + 1]), rtol=1e-12)
    np.testing.assert_allclose(alpha[s] + b[s], 1.0, rtol=1e-12)
    assert 0 <= ours.beta_tilde(s, t) <= b[s] * (1 + 1e-12)


@given(betas=st.lists(st.floats(1e-4, 0.9), min_size=1, max_size=20), r=st.floats(0.1, 10.0))
def test_data_of_another_range_have_the_schedule_of_their_signal(betas, r):
    """x_t / √(r²ᾱ + b) has the signal r√ᾱ / √(r²ᾱ + b) of data in [-1, 1]."""
    ours = schedule.Schedule(np.append(0.0, betas))
    signal = r**2 * ours.alpha_bar
    np.testing.assert_allclose(ours.spread(r), signal + ours.b)
    np.testing.assert_allclose(ours.for_range(r).alpha_bar, signal / (signal + ours.b), rtol=1e-9)


def test_a_linear_schedule_of_any_length_ends_equally_noisy():
    for steps in (50, 1000, 4000):
        assert steps * schedule.linear(steps).betas[[1, -1]] == pytest.approx([0.1, 20.0])


def test_the_timesteps_s_first_posterior_variance_is_that_of_its_first_two_timesteps():
    full = schedule.linear(50)
    for timesteps, expected in (((5, 40), (5, 40)), ((3, 9, 40), (3, 9)), ((40,), (1, 2))):
        last = transitions(full, timesteps)[-1]
        assert last.beta_tilde_timesteps_start == full.beta_tilde(*expected)
        assert last.beta_tilde_schedule_start == full.beta_tilde(1, 2)


def test_costs_of_batches_are_averaged_by_their_sizes():
    costs = [rules.StepCosts((0, 1), np.full((2, 2), c), np.full(2, 10 * c)) for c in (1.0, 4.0)]
    found = rules.averaged(costs, [2, 1])
    assert (found.steps == 2.0).all() and (found.ends == 20.0).all()


@given(steps=st.integers(2, 300), data=st.data())
def test_even_timesteps_ends_at_both_ends(steps, data):
    length = data.draw(st.integers(2, steps))
    timesteps = rules.even(steps, length)
    assert len(set(timesteps)) == length and timesteps[0] == 1 and timesteps[-1] == steps
    assert list(timesteps) == sorted(timesteps)


@given(steps=st.integers(3, 8), seed=st.integers(0, 10**6))
def test_optimal_timesteps_equal_exhaustive_search(steps, seed):
    draw = np.random.default_rng(seed)
    costs, ends = draw.normal(size=(steps + 1, steps + 1)), draw.normal(size=steps + 1)

    def total(timesteps):
        return ends[timesteps[-1]] + sum(costs[s, t] for s, t in rules.downward(timesteps))

    found = rules.optimal(costs, ends, steps)
    assert {*found} == {*range(1, steps + 1)}
    for length, timesteps in found.items():
        best = min(combinations(range(1, steps + 1), length), key=total)
        assert total(timesteps) == pytest.approx(total(best))


def test_optimal_timesteps_leave_out_what_is_infinite_or_not_a_number():
    costs, ends = np.zeros((4, 4)), np.zeros(4)
    costs[0, 1:] = np.nan, np.inf, 1.0
    assert rules.optimal(costs, ends, 3) == {1: (3,)}


def test_all_optimal_timesteps_of_a_thousand_timesteps_take_less_than_a_second():
    draw = np.random.default_rng(0)
    costs, ends = draw.exponential(size=(1001, 1001)), np.zeros(1001)
    began = process_time()
    assert len(rules.optimal(costs, ends, 100)) == 100
    assert process_time() - began < 1.0


def test_a_power_timesteps_is_the_power_of_an_even_grid():
    assert rules.power(1000, 5, 1.0, 200) == (200, 400, 600, 800, 1000)
    assert rules.power(1000, 10, 2.0, 10) == tuple(10 * k**2 for k in range(1, 11))
    assert rules.power(100, 10, 2.0, 1) == tuple(k**2 for k in range(1, 11))
    assert rules.power(1000, 1, 2.0, 10) == (1000,)

    # without a first timestep the grid begins at 0; 0.4 is rounded to 0
    assert rules.power(1000, 5, 1.0) == (200, 400, 600, 800, 1000)
    assert rules.power(1000, 10, 2.0) == rules.power(1000, 10, 2.0, 10)
    assert rules.power(1000, 1, 1.5) == (1000,)
    with pytest.raises(OcmError, match="power timesteps: 50 of T = 1000 visit one twice"):
        rules.build(params.PowerTimesteps(exponent=2.0), schedule.linear(1000), 50)
    assert rules.grid(params.PowerTimesteps(exponent=2.0), schedule.linear(1000), 50)[0] == 1

    # the first timestep can be a share of all
    assert rules.power(4000, 7, 1.5, 0.065) == rules.power(4000, 7, 1.5, 260)
    assert rules.power(40, 3, 1.0, 0.05) == (2, 21, 40)


def test_bad_requests_are_refused_in_words():
    short, whole, far = schedule.linear(50), schedule.linear(1000), "expected 0 ≤ s < t ≤ T = 50"
    listed, beyond = (params.ListedTimesteps(values=v) for v in ([[4], [1, 5, 9]], [[4, 51]]))
    late = params.PowerTimesteps(exponent=2.0, first=50)
    for message, ask, *asked in (
        ("K = 11 steps: expected 1 ≤ K ≤ T = 10", rules.even, 10, 11),
        ("visit one twice", rules.build, params.NamedTimesteps(kind="quadratic"), whole, 500),
        ("none with 2 steps; available numbers of steps: 1, 3", rules.build, listed, short, 2),
        ("end at 51: expected at most T = 50", rules.build, beyond, short, 2),
        ("of 'ocm': none with 2 steps", rules.build, params.OptimalTimesteps(), short, 2, "ocm"),
        ("expected a timestep below T = 50", rules.build, late, short, 2),
        ("'exponential' is unknown; valid: cosine, linear", schedule.build, "exponential", 10),
        (far, short.skips_to, 51),
        (f"s = 7, t = 7: {far}", transition, short, 7, 7),
        ("strictly between 0 and 1", schedule.Schedule, np.array([0.0, 1.5])),
    ):
        with pytest.raises(OcmError, match=message):
            ask(*asked)
