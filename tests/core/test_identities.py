"""Identities that hold for every schedule, step and shape."""

from functools import partial
from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.distributions import MultivariateNormal, kl_divergence

from ocm_core import covariance
from ocm_core.covariance.interface import UNCLIPPED, Clip, ClipCounter, ReverseStep, predict
from ocm_core.covariance.learned import CovarianceHead, TrainingBatch
from ocm_core.covariance.rademacher import hutchinson
from ocm_core.diffusion.denoiser import Denoiser
from ocm_core.diffusion.gaussian import Decoder, Diagonal, full
from ocm_core.diffusion.guidance import Guidance, GuidedDenoiser
from ocm_core.diffusion.mixture import Mixture
from ocm_core.diffusion.schedule import Schedule, predict_x0
from ocm_core.diffusion.transition import transition
from ocm_core.likelihood.bound import Likelihood
from ocm_core.rng.noise import SampleNoise
from tests.core.doubles import (
    Ddim,
    Ddpm,
    LabelledNetwork,
    QuadraticNetwork,
    Replay,
    exact,
    root_of,
    spectra,
)

betas = st.lists(st.floats(1e-4, 0.5), min_size=3, max_size=12)
seeds = st.integers(0, 2**31)
dimensions = st.integers(1, 5)
ALL = {kind: covariance.build(kind) for kind in covariance.available()}
BOUNDED = {k: method for k, method in ALL.items() if method.has_density}
DDPM = {kind: method for kind, method in BOUNDED.items() if method.defined_for("ddpm")}


def a_step(betas, data):
    schedule = Schedule(np.append(0.0, betas))
    t = data.draw(st.integers(2, schedule.steps))
    return schedule, transition(schedule, data.draw(st.integers(1, t - 1)), t)


def points(seed, *shape):
    return torch.from_numpy(np.random.default_rng(seed).normal(size=shape))


@given(betas, seeds, st.data())
def test_two_forms_of_the_ocm_covariance(betas, seed, data):
    """β̃ + a² (b/ᾱ)(1 + b diag H) equals the paper's (b_{s:t}² diag H + b_{s:t}) / ᾱ_{s:t}."""
    _, step = a_step(betas, data)
    hessian = points(seed, 4, 3)
    ours = ReverseStep(step, Ddpm()).variance(1.0 + step.b_t * hessian)
    paper = (step.b_st**2 * hessian + step.b_st) / step.alpha_bar_st
    torch.testing.assert_close(ours, paper, rtol=1e-8, atol=1e-10)


@given(betas, seeds, st.data())
def test_ddpm_is_ddim_with_eta_one(betas, seed, data):
    _, step = a_step(betas, data)
    x, eps = points(seed, 2, 3), points(seed + 1, 2, 3)
    x0 = predict_x0(x, eps, step.alpha_bar_t, step.b_t)
    ddpm, ddim = Ddpm(), Ddim(eta=1.0)
    means = (kernel.mean(step, x, x0, eps) for kernel in (ddpm, ddim))
    torch.testing.assert_close(*means, rtol=1e-7, atol=1e-9)
    assert ddpm.floor(step) == pytest.approx(ddim.floor(step))
    assert ddpm.gain(step) == pytest.approx(ddim.gain(step), rel=1e-6, abs=1e-12)


@given(betas, seeds, dimensions, st.data())
def test_exact_diagonal_is_the_mean_over_all_sign_probes(betas, seed, dimension, data):
    schedule, step = a_step(betas, data)
    model = Denoiser(QuadraticNetwork(dimension, seed), schedule)
    seen = model.predict(points(seed, 3, dimension), step.t)
    signs = product([-1.0, 1.0], repeat=dimension)
    probes = [torch.tensor(v, dtype=torch.float64).expand(3, -1) for v in signs]
    exact = covariance.build("exact_diag").c(seen)
    torch.testing.assert_close(hutchinson(seen, probes), exact, rtol=1e-9, atol=1e-9)
    batch = TrainingBatch(seen, seen.x, seen.x, Decoder(None), tuple(probes))
    for count, expected in ((len(probes), exact), (1, hutchinson(seen, probes[:1]))):
        target = covariance.build("ocm", probes=count).target(batch)
        torch.testing.assert_close(target, expected, rtol=1e-9, atol=1e-9)


@given(betas, seeds, dimensions, st.integers(1, 8), st.data())
def test_probes_through_the_jacobian_equal_probes_one_by_one(betas, seed, dimension, count, data):
    schedule, step = a_step(betas, data)
    model = Denoiser(QuadraticNetwork(dimension, seed), schedule)
    seen = model.predict(points(seed, 2, dimension), step.t)
    probes = [torch.sign(points(seed + i, 2, dimension)) for i in range(count)]
    one_by_one = torch.stack([hutchinson(seen, [v]) for v in probes]).mean(0)
    torch.testing.assert_close(hutchinson(seen, probes), one_by_one, rtol=1e-9, atol=1e-9)


@given(betas, seeds, st.floats(0.05, 3.0), st.data())
def test_sn_equals_ocm_for_a_gaussian(betas, seed, std, data):
    """E[ε² | x_t] - ε̂² = 1 - √b diag J where both are known in closed form."""
    schedule, step = a_step(betas, data)
    gaussian = Mixture(torch.zeros(1, 2, dtype=torch.float64), std)
    seen = exact(gaussian, schedule).predict(points(seed, 4, 2), step.t)
    posterior = std**2 * step.b_t / (step.alpha_bar_t * std**2 + step.b_t)
    second_moment = step.alpha_bar_t / step.b_t * posterior + seen.eps**2  # E[ε² | x_t]
    ocm = covariance.build("exact_diag").c(seen)
    torch.testing.assert_close(second_moment - seen.eps**2, ocm, rtol=1e-7, atol=1e-9)


def a_diagonal(matrix, shape):
    variance = matrix.diagonal(dim1=1, dim2=2)
    return Diagonal(variance.view(-1, *shape)), torch.diag_embed(variance)


def a_full(matrix, shape):
    skewed = matrix.tril(-1) - matrix.tril(-1).mT
    return full(matrix + skewed), matrix  # of any matrix its symmetric part


SHAPES = st.sampled_from([(1,), (4,), (2, 2, 3)])


@pytest.mark.parametrize("kind", [a_diagonal, a_full])  # each with the matrix that it stands for
@given(seed=seeds, shape=SHAPES, factor=st.floats(0.1, 3.0))
def test_a_covariance_is_that_of_its_matrix(kind, seed, shape, factor):
    d = int(np.prod(shape))
    root, difference = points(seed, 3, d, d), points(seed + 1, 3, *shape)
    eye = torch.eye(d, dtype=torch.float64)
    found, matrix = kind(0.1 * eye + root @ root.mT, shape)

    def dense(covariance):
        columns = root_of(covariance, difference)
        torch.testing.assert_close(columns, columns.mT)
        return columns @ columns

    torch.testing.assert_close(dense(found), matrix)
    diagonal = found.diagonal(difference).flatten(1)
    torch.testing.assert_close(diagonal, matrix.diagonal(dim1=1, dim2=2))
    values, vectors = torch.linalg.eigh(matrix)
    limited = (vectors * values.clamp(max=factor**2).unsqueeze(1)) @ vectors.mT
    torch.testing.assert_close(dense(found.limited(factor)), limited)
    q = MultivariateNormal(difference.flatten(1), factor * eye)
    divergence = kl_divergence(q, MultivariateNormal(torch.zeros(d).double(), matrix))
    torch.testing.assert_close(found.divergence(factor, difference), divergence)


def variances(name, seen, step, *probes):
    found = covariance.build(name).step_covariance(seen, Replay([], probes))
    return found(ReverseStep(step, Ddpm(), UNCLIPPED)).diagonal(seen.x)


@given(betas, seeds, st.sampled_from([k for k in DDPM if not DDPM[k].fixed_variance]), st.data())
@settings(max_examples=80)
def test_guidance_at_one_is_the_conditional_model(betas, seed, name, data):
    schedule, step = a_step(betas, data)
    network, table = LabelledNetwork(seed), torch.rand(schedule.steps + 1)
    heads = {kind: CovarianceHead(network.make_head("linear")) for kind in DDPM}
    known = {"moments": table, "spectra": spectra(schedule, 4, 2, 2)}
    model = Denoiser(network, schedule, heads=heads, **known)
    x, label = points(seed, 3, 4, 2, 2), torch.tensor([0, 1, 2])
    channels = data.draw(st.sampled_from([None, 3]))
    guided = GuidedDenoiser(model, Guidance(1.0, channels), 3).predict(x, step.t, label)
    plain = model.predict(x, step.t, label)
    torch.testing.assert_close(guided.eps, plain.eps)
    probe = torch.sign(points(seed + 1, 3, 4, 2, 2))
    torch.testing.assert_close(*(variances(name, seen, step, probe) for seen in (guided, plain)))


@given(seeds, st.floats(0.0, 6.0), st.sampled_from([None, 3]), st.booleans())
@settings(max_examples=30)
def test_guided_covariance_is_that_of_the_guided_score(seed, scale, channels, graph):
    """The Jacobian is linear in ε̂: mixing c equals differentiating the mixed prediction."""
    schedule = Schedule(np.linspace(0.0, 0.3, 6))
    model = Denoiser(LabelledNetwork(seed), schedule)
    x, label, null = points(seed, 2, 4, 2, 2), torch.tensor([0, 2]), torch.tensor([3])
    guided = GuidedDenoiser(model, Guidance(scale, channels), 3)
    reverse = ReverseStep(transition(schedule, 1, 4), Ddpm(), UNCLIPPED)
    method = covariance.build("exact_diag")
    seen = predict(guided, [method] if graph else [], x, 4, label)
    mixed = method.step_covariance(seen, Replay([]))(reverse).diagonal(x)

    weight = torch.full((4, 1, 1), scale, dtype=torch.float64)
    weight[channels or 4 :] = 1.0

    def prediction(point, row):
        given, none = (model.predict(point[None], 4, y).eps[0] for y in (label[row, None], null))
        return (none + weight * (given - none)).flatten()

    jacobian = torch.autograd.functional.jacobian
    jacobians = [jacobian(partial(prediction, row=row), x[row]) for row in range(2)]
    diagonals = torch.stack([j.reshape(16, 16).diagonal() for j in jacobians])
    c = (1.0 - np.sqrt(schedule.b[4]) * diagonals).view_as(x)
    torch.testing.assert_close(mixed, reverse.variance(c), rtol=1e-7, atol=1e-9)
    whole = covariance.build("exact_full").step_covariance(seen, Replay([]))(reverse)
    torch.testing.assert_close(whole.diagonal(x), mixed)


@given(seeds, st.floats(0.0, 6.0))
@settings(max_examples=20)
def test_the_conditional_covariance_is_that_of_the_conditional_model_alone(seed, scale):
    schedule = Schedule(np.linspace(0.0, 0.3, 6))
    model = Denoiser(LabelledNetwork(seed), schedule)
    x, label, step = points(seed, 2, 4, 2, 2), torch.tensor([0, 2]), transition(schedule, 1, 4)
    guided = GuidedDenoiser(model, Guidance(scale, covariance="conditional"), 3)
    seen = (denoiser.predict(x, 4, label) for denoiser in (guided, model))
    torch.testing.assert_close(*(variances("exact_diag", each, step) for each in seen))


@given(seeds)
@settings(max_examples=8)
def test_shared_likelihood_pass_equals_method_by_method(seed):
    schedule = Schedule(np.append(0.0, np.linspace(1e-3, 0.2, 30)))
    mixture = Mixture(points(seed, 3, 2), 0.3)
    model = exact(mixture, schedule, moments=torch.rand(31).double())
    methods = {name: method for name, method in DDPM.items() if method.needs != "head"}
    timesteps = {"K30": tuple(range(1, 31)), "K3": (1, 10, 30), "K2": (1, 30)}
    x0 = points(seed + 1, 5, 2)

    def noise_at(t):
        return SampleNoise(seed % 1000 + t, range(5), (2,))

    together, _ = Likelihood(model, methods, Decoder(None)).bounds(timesteps, x0, noise_at)
    for rule, visited in timesteps.items():
        for name, method in methods.items():
            apart = Likelihood(model, {name: method}, Decoder(None))
            alone, _ = apart.bounds({rule: visited}, x0, noise_at)
            torch.testing.assert_close(together[rule, name].terms, alone[rule, name].terms)
            assert (together[rule, name].terms[1:-1] >= -1e-6).all()


def test_clamped_entries_are_counted():
    schedule = Schedule(np.append(0.0, np.linspace(1e-3, 0.2, 10)))
    step = ReverseStep(transition(schedule, 1, 5), Ddpm(), Clip(c_min=0.0, c_max=1.0))
    scale = step.transition.posterior_scale
    variance = step.variance(torch.tensor([[-1.0, 0.5, 3.0, 2.0]]) / scale)
    assert step.counter.read() == {"entries": 4, "below": 1, "above": 2}
    floor, gain = step.kernel.floor(step.transition), step.kernel.gain(step.transition)
    torch.testing.assert_close(variance, floor + gain * torch.tensor([[0.0, 0.5, 1.0, 1.0]]))
    step.clip.limit_c(torch.tensor([0.0, 1.0]), at_the_limits := ClipCounter())
    assert at_the_limits.read() == {"entries": 2, "below": 0, "above": 0}
