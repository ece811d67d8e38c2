"""The published code: steps, trajectories, bounds, losses and their gradients, moments, probes."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch

from ocm_core import covariance
from ocm_core.covariance.interface import UNCLIPPED, Clip, ReverseStep
from ocm_core.covariance.learned import CovarianceHead, TrainingBatch
from ocm_core.diffusion import schedule
from ocm_core.diffusion import timesteps as rules
from ocm_core.diffusion.denoiser import Denoiser, Prediction, TimeConvention
from ocm_core.diffusion.gaussian import Decoder, pixel_sigma_limit
from ocm_core.diffusion.score_network import TrunkFeatures
from ocm_core.diffusion.transition import transition
from ocm_core.likelihood.bound import Likelihood
from ocm_core.networks.keys import published_keys
from ocm_core.training import moments
from tests.core.doubles import Ddim, Ddpm, Given, Replay, ancestral
from tests.goldens_io import arrays, assert_close, facts, tensor
from tests.networks.golden import golden

HEADS = ("sn", "npr", "ocm", "iddpm")
PIXELS = Clip(x0=1.0, c_min=0.0, c_max=1.0)
KERNELS = {"ddpm": Ddpm(), "ddim0": Ddim(eta=0.0), "ddim0.5": Ddim(eta=0.5)}
CLIPS = {"clip0": UNCLIPPED, "clip1": PIXELS}
PRECISIONS = {"f64": (torch.float64, 1e-10), "f32": (torch.float32, 2e-5)}


def method_for(method: str, kernel: str = "ddpm") -> covariance.CovarianceMethod:
    """The goldens have names of their own for two of our methods."""
    small = "beta_tilde" if kernel == "ddpm" else "delta"
    return covariance.build({"small": small, "big": "beta"}.get(method, method))


@cache
def golden_denoiser(network: str, tag: str, shifted: bool) -> Denoiser:
    """With the published time convention; the file's one head answers for every method."""
    kind, steps = tag.split("_")
    score, head = golden(network).load()
    heads = dict.fromkeys(HEADS, CovarianceHead(head)) if head is not None else {}
    time = TimeConvention(shift=int(shifted), scale=1000 / int(steps))
    return Denoiser(score.requires_grad_(False), schedule.build(kind, int(steps)), time, heads)


def case_denoiser(case: dict) -> Denoiser:
    return golden_denoiser(case["network"], case["schedule"], bool(case["shift1"]))


def with_moments(file: str, case: str) -> Denoiser:
    table = 1.0 - tensor(file, f"{case}/ms_eps").double()
    return replace(case_denoiser(facts("nelbo")["cases"][case]), moments=table)


def golden_steps(tag, precision, kernel, clip):
    """Each step of the file, and what the network said before it."""
    case, (dtype, _) = facts("posterior_steps")["cases"][tag], PRECISIONS[precision]

    def get(key, row=...):
        return tensor("posterior_steps", f"{tag}/{key}")[row]

    levels, table = schedule.build(case["schedule"], case["N"]), 1 - get("ms_eps").double()
    for row, (s, t) in enumerate(get("pairs").tolist()):
        x, eps = (get(key, row).to(dtype) for key in ("x", "eps"))
        said = {name: Given(get(f"second_{name}", row).to(dtype)) for name in HEADS}
        heads = {name: CovarianceHead(head) for name, head in said.items()}
        model, times = Denoiser(None, levels, heads=heads, moments=table), torch.full((len(x),), t)
        seen = Prediction(x, times, eps, None, model, None, TrunkFeatures(x, x))
        yield row, seen, ReverseStep(transition(levels, s, t), KERNELS[kernel], CLIPS[clip])


FILES = arrays("posterior_steps").files
VARIANCES = [tuple(key.split("/")[:-1]) for key in FILES if key.endswith("/sigma2")]


@pytest.mark.parametrize("tag, precision, method, kernel, clip", VARIANCES)
def test_variance_of_every_step(tag, precision, method, kernel, clip):
    golden = arrays("posterior_steps")[f"{tag}/{precision}/{method}/{kernel}/{clip}/sigma2"]
    # the reference forms 1 - Γ in float32, hence the looser floor for `analytic`
    tolerance = max(PRECISIONS[precision][1], 1e-7 if method == "analytic" else 0.0)
    for row, seen, step in golden_steps(tag, precision, kernel, clip):
        ours = method_for(method, kernel).step_covariance(seen, Replay([]))(step)
        expected = np.broadcast_to(golden[row], seen.x.shape)
        assert_close(ours.diagonal(seen.x), expected, tolerance)


@pytest.mark.parametrize("clip", CLIPS)
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("tag", facts("posterior_steps")["cases"])
def test_mean_of_every_step(tag, precision, kernel, clip):
    golden = arrays("posterior_steps")[f"{tag}/{precision}/mean/{kernel}/{clip}"]
    for row, seen, step in golden_steps(tag, precision, kernel, clip):
        assert_close(step.mean(seen), golden[row], PRECISIONS[precision][1])


@pytest.mark.parametrize("run", facts("trajectories")["runs"])
def test_trajectory_step_by_step_and_end_to_end(run):
    case, meta = run.split("/")[0], facts("trajectories")["runs"][run]
    model = with_moments("trajectories", case)
    kernel = Ddpm() if meta["forward"] == "ddpm" else Ddim(eta=meta["eta"])
    before, final, sigmas = (
        tensor("trajectories", f"{run}/{key}")
        for key in ("x_before_step", "x_final", "sigma2_before_clip")
    )
    x_init, noise = (tensor("trajectories", f"{case}/{key}") for key in ("x_init", "noise"))
    method = method_for(meta["method"], meta["forward"])
    final_sigma = pixel_sigma_limit(meta["clip_pixel"])
    for i, (s, t) in enumerate(meta["steps_s_t"]):
        step = ReverseStep(transition(model.schedule, s, t), kernel, PIXELS)
        with torch.no_grad():
            seen = model.predict(before[i], t)
            x = step.mean(seen)
            if s > 0:
                found = method.step_covariance(seen, Replay([]))(step)
                expected = sigmas[i].expand_as(x).to(x)
                torch.testing.assert_close(found.diagonal(x), expected, rtol=1e-4, atol=1e-4)
                found = found.limited(final_sigma) if s <= 1 else found
                x = x + found.scale(noise[i])
        torch.testing.assert_close(x, [*before[1:], final][i], rtol=0, atol=1e-4)

    timesteps, options = rules.even(model.schedule.steps, 10), {"final_sigma": final_sigma}
    replayed = Replay([x_init, *noise])
    sampled = ancestral(model, method, timesteps, replayed, kernel=kernel, clip=PIXELS, **options)
    # a random network amplifies rounding along DDIM timesteps (goldens/README.md)
    tolerance = 1e-4 if meta["forward"] == "ddpm" else 1e-2
    torch.testing.assert_close(sampled.x, final, rtol=0, atol=tolerance)


@pytest.mark.parametrize("case, length", [("a", 10), ("a", 50), ("b", 10)])
def test_bound_term_by_term(case, length):
    golden, model = arrays("nelbo"), with_moments("nelbo", case)
    methods = {name: method_for(name) for name in ("small", "big", "analytic", *HEADS)}
    timesteps = rules.even(model.schedule.steps, length)
    drawn = dict(zip(reversed(timesteps), tensor("nelbo", f"{case}/K{length}/noise"), strict=True))
    found, _ = Likelihood(model, methods, Decoder(256, "tanh"), PIXELS).bounds(
        {"K": timesteps}, tensor("nelbo", f"{case}/x0"), lambda t: Replay([drawn[t]])
    )
    for name in methods:
        ours, prefix = found["K", name], f"{case}/K{length}/{name}"
        expected = golden[f"{prefix}/terms"]
        assert_close(ours.terms[:-1], expected[:-1], 1e-5)
        # the reference's prior term carries 1e-5 of float32 cancellation
        np.testing.assert_allclose(ours.terms[-1], expected[-1], atol=2e-5)
        bits = golden[f"{prefix}/bits_per_dim"]
        np.testing.assert_allclose(ours.bits_per_dim.sum(0), bits, rtol=2e-5)


LOSSES = sorted(
    {tuple(key.split("/")[:2]) for key in arrays("losses").files if key.endswith("/loss")}
    - {(case, "npr_joint") for case in "abcd"}
)


def training_batch(model, file, case, methods, step=...):
    def get(key):
        return tensor(file, f"{case}/{key}")[step]

    x0, eps, n = get("x0"), get("eps"), get("n")
    signal = model.schedule.at(model.schedule.alpha_bar, n, x0).sqrt()
    x = signal * x0 + model.schedule.at(model.schedule.b, n, x0).sqrt() * eps
    probes = (get("v").float(),) if f"{case}/v" in arrays(file).files else ()
    graph = any(method.training_probes for method in methods)
    with torch.set_grad_enabled(graph):
        prediction = model.predict(x.requires_grad_(graph), n)
    return TrainingBatch(prediction, x0, eps, Decoder(256), probes)


@pytest.mark.parametrize("case, name", LOSSES)
def test_loss_and_head_gradient(case, name):
    golden, prefix = arrays("losses"), f"{case}/{name}/grad/"
    model = case_denoiser(facts("losses")["cases"][case])
    head = model.heads[name].net
    head.zero_grad()
    method = covariance.build(name)
    batch = training_batch(model, "losses", case, [method])
    loss = method.loss(batch)
    assert_close(loss.detach(), golden[f"{case}/{name}/second_sum_of_squares"], 1e-5)
    residual = ((batch.eps - batch.predicted_eps) ** 2).flatten(1).sum(1)
    assert_close(residual, golden[f"{case}/{name}/eps_sum_of_squares"], 1e-5)
    loss.mean().backward()
    names = published_keys(head)
    ours = {names[key]: parameter.grad for key, parameter in head.named_parameters()}
    found = (key for key in golden.files if key.startswith(prefix))
    expected = {key.removeprefix(prefix): golden[key] for key in found}
    assert ours.keys() == expected.keys()
    largest = max(float(np.abs(value).max()) for value in expected.values())
    for key, value in expected.items():
        np.testing.assert_allclose(ours[key], value, rtol=0, atol=1e-5 * largest)


@pytest.mark.parametrize("case", ["a", "b", "d"])
def test_exact_diagonal_equals_the_published_hessian(case):
    model = case_denoiser(facts("losses")["cases"][case])
    x, n = tensor("losses", f"{case}/xn"), tensor("losses", f"{case}/n")[:2]
    c = covariance.build("exact_diag").c(model.predict(x, n))
    expected = 1.0 + tensor("losses", f"{case}/diag_hessian_times_cum_beta")
    assert_close(c, expected, 1e-5)


def test_moments_equal_the_published_ones():
    golden = arrays("ms_eps")
    model = case_denoiser(facts("ms_eps"))
    x0, noise = tensor("ms_eps", "x0"), tensor("ms_eps", "noise")
    times = range(1, model.schedule.steps + 1)
    entries = [moments.estimate_at(model, t, x0, noise[t - 1]) for t in times]
    found = moments.tables(model.schedule.steps, times, torch.stack(entries, 1))
    np.testing.assert_allclose(found["gamma"], golden["ms_eps"], rtol=1e-5)
    errors = np.sqrt(golden["vars"] / len(x0))
    np.testing.assert_allclose(found["gamma_error"], errors, rtol=1e-3, atol=1e-8)


def test_hundred_probes_equal_the_published_estimator():
    golden, meta = arrays("rademacher"), facts("rademacher")["cases"]["a"]
    model, method = case_denoiser(meta), covariance.build("rademacher", probes=100)
    shape = tuple(golden["a/v_shape"])
    bits = np.unpackbits(golden["a/v"])[: np.prod(shape)].reshape(shape)
    probes = torch.from_numpy(bits.astype(np.float32) * 2 - 1)
    for row, (s, t) in enumerate(meta["pairs"]):
        step = ReverseStep(transition(model.schedule, s, t), Ddpm(), PIXELS)
        seen = model.predict(tensor("rademacher", "a/x")[row], t)
        sigma2 = method.step_covariance(seen, Replay([], probes[row]))(step).diagonal(seen.x)
        assert_close(sigma2, golden["a/sigma2"][row], 1e-5)
        assert_close(step.mean(seen), golden["a/mean"][row], 1e-5)
