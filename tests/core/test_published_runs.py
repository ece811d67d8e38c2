"""Whole runs of the published code: trajectories, bounds, losses, updates, moments, probes."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from ocm_core import covariance
from ocm_core.covariance.interface import Clip, ReverseStep
from ocm_core.covariance.learned import TrainingBatch
from ocm_core.diffusion import timesteps as rules
from ocm_core.diffusion.gaussian import Decoder, pixel_sigma_limit
from ocm_core.diffusion.kernels.ddim import Ddim
from ocm_core.diffusion.kernels.ddpm import Ddpm
from ocm_core.diffusion.transition import transition
from ocm_core.likelihood.bound import Likelihood
from ocm_core.training import moments
from tests.core.doubles import Replay, ancestral
from tests.core.published import OURS, case_denoiser
from tests.goldens_io import arrays, assert_close, facts, tensor

PIXELS = Clip(x0=1.0, c_min=0.0, c_max=1.0)


def moments_table(file: str, case: str) -> torch.Tensor:
    return 1.0 - tensor(file, f"{case}/ms_eps").double()


def method_for(method: str, kernel: str) -> covariance.CovarianceMethod:
    name = "delta" if (method, kernel) == ("small", "ddim") else OURS.get(method, method)
    return covariance.build(name)


@pytest.mark.parametrize("run", facts("trajectories")["runs"])
def test_trajectory_step_by_step(run):
    case = run.split("/")[0]
    meta = facts("trajectories")["runs"][run]
    golden = arrays("trajectories")
    model = case_denoiser(facts("nelbo")["cases"][case])
    model = replace(model, moments=moments_table("trajectories", case))
    kernel = Ddpm() if meta["forward"] == "ddpm" else Ddim(eta=meta["eta"])
    before = torch.tensor(golden[f"{run}/x_before_step"])
    after = [*before[1:], torch.tensor(golden[f"{run}/x_final"])]
    noise = [*torch.tensor(golden[f"{case}/noise"]), torch.zeros_like(before[0])]
    method = method_for(meta["method"], meta["forward"])
    final_sigma = pixel_sigma_limit(meta["clip_pixel"])
    for i, (s, t) in enumerate(meta["steps_s_t"]):
        step = ReverseStep(transition(model.schedule, s, t), kernel, PIXELS)
        with torch.no_grad():
            seen = model.predict(before[i], t)
            x = step.mean(seen)
            if s > 0:
                found = method.step_covariance(seen, Replay([]))(step)
                sigma2 = golden[f"{run}/sigma2_before_clip"][i]
                golden_sigma2 = torch.tensor(sigma2).expand_as(x)
                torch.testing.assert_close(
                    found.diagonal(x), golden_sigma2.to(x), rtol=1e-4, atol=1e-4
                )
                found = found.limited(final_sigma) if s <= 1 else found
                x = x + found.scale(noise[i])
        torch.testing.assert_close(x, after[i], rtol=0, atol=1e-4)


@pytest.mark.parametrize("run", facts("trajectories")["runs"])
def test_trajectory_end_to_end(run):
    case, _ = run.split("/")
    meta, golden = facts("trajectories")["runs"][run], arrays("trajectories")
    model = case_denoiser(facts("nelbo")["cases"][case])
    sampled = ancestral(
        replace(model, moments=moments_table("trajectories", case)),
        method_for(meta["method"], meta["forward"]),
        rules.even(model.schedule.steps, 10),
        Replay(
            [tensor("trajectories", f"{case}/x_init"), *tensor("trajectories", f"{case}/noise")]
        ),
        kernel=Ddpm() if meta["forward"] == "ddpm" else Ddim(eta=meta["eta"]),
        clip=PIXELS,
        final_sigma=pixel_sigma_limit(meta["clip_pixel"]),
    )
    # a random network amplifies rounding along DDIM timesteps (goldens/README.md)
    tolerance = 1e-4 if meta["forward"] == "ddpm" else 1e-2
    final = torch.tensor(golden[f"{run}/x_final"])
    torch.testing.assert_close(sampled.x, final, rtol=0, atol=tolerance)


BOUND_CASES = [("a", 10), ("a", 50), ("b", 10)]


@pytest.mark.parametrize("case, length", BOUND_CASES)
def test_bound_term_by_term(case, length):
    """All methods in one shared pass equal the reference's one-by-one evaluation."""
    golden = arrays("nelbo")
    model = case_denoiser(facts("nelbo")["cases"][case])
    model = replace(model, moments=moments_table("nelbo", case))
    names = ["small", "big", "analytic", "sn", "npr", "ocm", "iddpm"]
    methods = {name: covariance.build(OURS.get(name, name)) for name in names}
    timesteps = rules.even(model.schedule.steps, length)
    drawn = dict(zip(reversed(timesteps), tensor("nelbo", f"{case}/K{length}/noise"), strict=True))
    found, _ = Likelihood(model, methods, Decoder(256, "tanh"), PIXELS).bounds(
        {"K": timesteps}, tensor("nelbo", f"{case}/x0"), lambda t: Replay([drawn[t]])
    )
    for name in names:
        expected = golden[f"{case}/K{length}/{name}/terms"]
        ours = found["K", name].terms
        assert_close(ours[:-1], expected[:-1], 1e-5)
        # the reference's prior term carries 1e-5 of float32 cancellation
        np.testing.assert_allclose(ours[-1], expected[-1], atol=2e-5)
        np.testing.assert_allclose(
            found["K", name].bits_per_dim.sum(0),
            golden[f"{case}/K{length}/{name}/bits_per_dim"],
            rtol=2e-5,
        )


LOSSES = sorted(
    {tuple(key.split("/")[:2]) for key in arrays("losses").files if key.endswith("/loss")}
    - {(case, "npr_joint") for case in "abcd"}
)


def training_batch(model, file, case, methods, step=None):
    def get(key):
        value = tensor(file, f"{case}/{key}")
        return value if step is None else value[step]

    x0, eps, n = get("x0"), get("eps"), get("n")
    signal = model.schedule.at(model.schedule.alpha_bar, n, x0).sqrt()
    x = signal * x0 + model.schedule.at(model.schedule.b, n, x0).sqrt() * eps
    has_probes = f"{case}/v" in arrays(file).files
    probes = (get("v").float(),) if has_probes else ()
    graph = any(method.training_probes for method in methods)
    with torch.set_grad_enabled(graph):
        prediction = model.predict(x.requires_grad_(graph), n)
    return TrainingBatch(prediction, x0, eps, Decoder(256), probes)


@pytest.mark.parametrize("case, name", LOSSES)
def test_loss_and_head_gradient(case, name):
    golden = arrays("losses")
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
    ours = published_gradients(head)
    expected = {
        key.split("/grad/")[1]: golden[key]
        for key in golden.files
        if key.startswith(f"{case}/{name}/grad/")
    }
    assert ours.keys() == expected.keys()
    largest = max(float(np.abs(value).max()) for value in expected.values())
    for key, value in expected.items():
        np.testing.assert_allclose(ours[key], value, rtol=0, atol=1e-5 * largest)


def published_gradients(head):
    from ocm_core.networks.keys import published_keys

    names = published_keys(head)
    return {names[key]: parameter.grad for key, parameter in head.named_parameters()}


@pytest.mark.parametrize("case", ["a", "b", "d"])
def test_exact_diagonal_equals_the_published_hessian(case):
    model = case_denoiser(facts("losses")["cases"][case])
    if f"{case}/xn" not in arrays("losses").files:
        pytest.fail(f"the goldens have no exact diagonal for case {case}")
    x, n = tensor("losses", f"{case}/xn"), tensor("losses", f"{case}/n")[:2]
    c = covariance.build("exact_diag").c(model.predict(x, n))
    expected = 1.0 + tensor("losses", f"{case}/diag_hessian_times_cum_beta")
    assert_close(c, expected, 1e-5)


def test_moments_equal_the_published_ones():
    golden = arrays("ms_eps")
    model = case_denoiser(facts("ms_eps"))
    x0, noise = tensor("ms_eps", "x0"), tensor("ms_eps", "noise")
    found = moments.Moments.empty(model.schedule.steps)
    times = range(1, model.schedule.steps + 1)
    found.take({t: moments.estimate_at(model, t, x0, noise[t - 1]) for t in times})
    np.testing.assert_allclose(found.gamma, golden["ms_eps"], rtol=1e-5)
    errors = np.sqrt(golden["vars"] / len(x0))
    np.testing.assert_allclose(found.gamma_error, errors, rtol=1e-3, atol=1e-8)


def test_hundred_probes_equal_the_published_estimator():
    golden, meta = arrays("rademacher"), facts("rademacher")["cases"]["a"]
    model = case_denoiser(meta)
    shape = tuple(golden["a/v_shape"])
    bits = np.unpackbits(golden["a/v"])[: np.prod(shape)].reshape(shape)
    probes = torch.from_numpy(bits.astype(np.float32) * 2 - 1)
    method = covariance.build("rademacher", probes=100)
    for row, (s, t) in enumerate(meta["pairs"]):
        step = ReverseStep(transition(model.schedule, s, t), Ddpm(), PIXELS)
        seen = model.predict(tensor("rademacher", "a/x")[row], t)
        sigma2 = method.step_covariance(seen, Replay([], probes[row]))(step).diagonal(seen.x)
        assert_close(sigma2, golden["a/sigma2"][row], 1e-5)
        assert_close(step.mean(seen), golden["a/mean"][row], 1e-5)
