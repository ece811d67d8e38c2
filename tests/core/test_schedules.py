"""Schedules and chains against the published numbers, and the identities that define them."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ocm_core.diffusion import chains, schedule
from ocm_core.errors import OcmError
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


@pytest.mark.parametrize("tag", PUBLISHED)
def test_skips_equal_the_published_ones(tag):
    golden, ours = arrays("schedules"), named(tag)
    for row, (s, t) in enumerate(golden[f"{tag}/pairs"]):
        alpha, b = ours.skips_to(int(t))
        np.testing.assert_allclose(alpha[s], golden[f"{tag}/skip_alphas"][row], rtol=1e-14)
        np.testing.assert_allclose(b[s], golden[f"{tag}/skip_betas"][row], rtol=1e-14)
        np.testing.assert_allclose(
            ours.beta_tilde(s, t), golden[f"{tag}/tilde_beta"][row], rtol=1e-14
        )


@pytest.mark.parametrize("key, expected", facts("schedules")["trajectories"].items())
def test_chains_equal_the_published_ones(key, expected):
    kind, steps, length = key.rsplit("_", 2)
    function = {
        "linear": chains.even,
        "quad_ddim": chains.quadratic,
        "linear_ddim": chains.strided,
    }[kind]
    assert list(function(int(steps), int(length))) == expected


@pytest.mark.parametrize("key, expected", facts("schedules")["respacing"].items())
def test_respacing_equals_dit(key, expected):
    function = chains.strided if key.startswith("ddim") else chains.dit
    chain = function(1000, int(key.removeprefix("ddim")))
    assert [t - 1 for t in chain] == expected


@pytest.mark.parametrize("length", [10, 25, 50, 100, 200, 250])
def test_respaced_variances_equal_dit(length):
    golden, full = arrays("schedules"), schedule.linear(1000)
    chain = chains.dit(1000, length)
    respaced_betas = [full.skips_to(t)[1][s] for s, t in reversed(list(chains.downward(chain)))]
    np.testing.assert_allclose(respaced_betas, golden[f"dit_respaced_{length}/betas"], rtol=1e-11)
    posterior = [full.beta_tilde(s, t) for s, t in reversed(list(chains.downward(chain)))]
    np.testing.assert_allclose(
        posterior, golden[f"dit_respaced_{length}/posterior_variance"], rtol=1e-11
    )


@given(
    betas=st.lists(st.floats(1e-6, 0.999), min_size=2, max_size=40),
    data=st.data(),
)
def test_skips_follow_from_their_definition(betas, data):
    ours = schedule.Schedule(np.append(0.0, betas))
    t = data.draw(st.integers(1, ours.steps))
    s = data.draw(st.integers(0, t - 1))
    alpha, b = ours.skips_to(t)
    np.testing.assert_allclose(alpha[s], np.prod(1 - ours.betas[s + 1 : t + 1]), rtol=1e-12)
    np.testing.assert_allclose(alpha[s] + b[s], 1.0, rtol=1e-12)
    assert 0 <= ours.beta_tilde(s, t) <= b[s] * (1 + 1e-12)


@given(steps=st.integers(2, 300), data=st.data())
def test_even_chain_ends_at_both_ends(steps, data):
    length = data.draw(st.integers(2, steps))
    chain = chains.even(steps, length)
    assert len(set(chain)) == length and chain[0] == 1 and chain[-1] == steps
    assert list(chain) == sorted(chain)


@given(steps=st.integers(3, 8), seed=st.integers(0, 10**6), data=st.data())
def test_optimal_chain_equals_exhaustive_search(steps, seed, data):
    length = data.draw(st.integers(1, steps))
    costs = np.random.default_rng(seed).normal(size=(steps + 1, steps + 1))

    def total(chain):
        return sum(costs[s, t] for s, t in chains.downward(chain))

    candidates = [(*m, steps) for m in combinations(range(1, steps), length - 1)]
    best = min(candidates, key=total)
    assert total(chains.optimal(costs, length)) == pytest.approx(total(best))


def test_bad_requests_are_refused_in_words():
    with pytest.raises(OcmError, match="K = 11 steps: expected 1 ≤ K ≤ T = 10"):
        chains.even(10, 11)
    with pytest.raises(OcmError, match="visits a timestep twice"):
        chains.build("quadratic", 1000, 500)
    with pytest.raises(OcmError, match="'exponential' is unknown; valid: cosine, linear"):
        schedule.build("exponential", 10)
    with pytest.raises(OcmError, match="expected 0 ≤ s < t ≤ T = 50"):
        schedule.linear(50).skips_to(51)
    with pytest.raises(OcmError, match="strictly between 0 and 1"):
        schedule.Schedule(np.array([0.0, 1.5]))
