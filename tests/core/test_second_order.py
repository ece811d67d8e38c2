"""Second order: DPM-Solver++ 2M and SDE-DPM-Solver++ 2M as diffusers has them, and with a C."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, sqrt
from typing import Any

import pytest
import torch
from diffusers import DPMSolverMultistepScheduler, UniPCMultistepScheduler
from torch import Tensor

from ocm_core import covariance
from ocm_core.covariance.interface import Clip
from ocm_core.diffusion import schedule as schedules
from ocm_core.diffusion import timesteps as rules
from ocm_core.diffusion.denoiser import Denoiser
from ocm_core.diffusion.kernels import Kernel
from ocm_core.diffusion.kernels.ddim import Ddim
from ocm_core.diffusion.kernels.ddpm import Ddpm
from ocm_core.diffusion.mixture import Mixture
from ocm_core.diffusion.schedule import Schedule
from ocm_core.diffusion.timesteps import Timesteps
from ocm_core.diffusion.transition import transition, transitions
from ocm_core.errors import OcmError
from ocm_core.networks.mixture import MixtureScore
from ocm_core.rng.noise import SampleNoise
from ocm_core.sampling.recipe import Recipe, Sampled
from tests.core.doubles import WaveNetwork, ancestral

SCHEDULES = {"linear": schedules.linear(1000), "cosine": schedules.cosine(1000)}
CHAINS: dict[str, Timesteps] = {
    "even": rules.even(1000, 10),
    "quadratic": rules.quadratic(1000, 20),
    "long": rules.even(1000, 50),
    "two": (20, 900),
    "one": (600,),
}
SOLVERS: dict[str, tuple[Kernel, str]] = {
    "dpmsolver++": (Ddim(), "delta"),
    "sde-dpmsolver++": (Ddpm(), "beta_tilde"),
}


@dataclass(frozen=True)
class Case:
    denoiser: Denoiser
    shape: tuple[int, ...]
    clip: Clip
    options: dict[str, Any]  # of diffusers' scheduler

    def noise(self) -> SampleNoise:
        return SampleNoise(0, range(5), self.shape)


def points(schedule: Schedule) -> Case:
    modes = Mixture(torch.tensor([[-1.0, 0.5], [0.2, 1.0], [1.0, -1.0]]).double(), std=0.2)
    return Case(Denoiser(MixtureScore(modes, schedule), schedule), (2,), Clip(), {})


def clipped_images(schedule: Schedule) -> Case:
    """Dynamic thresholding whose threshold is 1 at least and at most clamps to [-1, 1]."""
    clip = Clip(x0=1.0)
    return Case(Denoiser(WaveNetwork(), schedule), (3, 4, 4), clip, {"thresholding": True})


def ours(case: Case, timesteps: Timesteps, solver: str) -> Tensor:
    kernel, method = SOLVERS[solver]
    rule = covariance.build(method)
    return second_order(case, rule, timesteps, kernel=kernel).x


def second_order(case: Case, *given: Any, **settings: Any) -> Sampled:
    return ancestral(case.denoiser, *given, case.noise(), order=2, clip=case.clip, **settings)


def theirs(case: Case, timesteps: Timesteps, solver: str) -> Tensor:
    """diffusers' own loop on the same timesteps (theirs begin at 0) and the same noise."""
    schedule = case.denoiser.schedule
    scheduler = DPMSolverMultistepScheduler(
        num_train_timesteps=schedule.steps,
        trained_betas=schedule.betas[1:],
        algorithm_type=solver,
        solver_order=2,
        **case.options,
    )
    # its own table is a product in float32, in which 1 - ᾱ_1 = 1e-4 has lost four digits
    scheduler.alphas_cumprod = torch.from_numpy(schedule.alpha_bar[1:])
    scheduler.set_timesteps(timesteps=[t - 1 for t in reversed(timesteps)])
    noise = case.noise()
    x = noise.normal()
    with torch.no_grad():
        for t in scheduler.timesteps:
            eps = case.denoiser.predict(x, int(t) + 1).eps
            x = scheduler.step(eps, t, x, variance_noise=noise.normal()).prev_sample
    return x


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("timesteps", CHAINS)
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("make", [points, clipped_images])
def test_it_is_the_solver_of_diffusers(
    make: Any, schedule: str, timesteps: str, solver: str
) -> None:
    case = make(SCHEDULES[schedule])
    expected = theirs(case, CHAINS[timesteps], solver)
    torch.testing.assert_close(ours(case, CHAINS[timesteps], solver), expected, atol=1e-5, rtol=0)


def unipc(case: Case, timesteps: Timesteps) -> Tensor:
    """diffusers' own loop on our timesteps, which its `set_timesteps` does not take."""
    schedule = case.denoiser.schedule
    scheduler = UniPCMultistepScheduler(trained_betas=schedule.betas[1:], **case.options)
    scheduler.set_timesteps(len(timesteps))
    scheduler.timesteps = torch.tensor([t - 1 for t in reversed(timesteps)])
    marginals = [schedule.marginal(t) for t in reversed(timesteps)]
    scheduler.sigmas = torch.tensor([*(sqrt(b / alpha) for alpha, b in marginals), 0.0])
    x = case.noise().normal()
    with torch.no_grad():
        for t in scheduler.timesteps:
            eps = case.denoiser.predict(x, int(t) + 1).eps
            x = scheduler.step(eps, t, x).prev_sample
    return x


@pytest.mark.parametrize("timesteps", CHAINS)
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("make", [points, clipped_images])
def test_corrected_it_is_unipc_of_diffusers(make: Any, schedule: str, timesteps: str) -> None:
    case = make(SCHEDULES[schedule])
    rule = covariance.build("delta")
    ours = ancestral(
        case.denoiser, rule, CHAINS[timesteps], case.noise(), kernel=Ddim(), order=3, clip=case.clip
    ).x
    torch.testing.assert_close(ours, unipc(case, CHAINS[timesteps]), atol=1e-5, rtol=0)
    if len(CHAINS[timesteps]) > 2:
        assert (
            ours - second_order(case, rule, CHAINS[timesteps], kernel=Ddim()).x
        ).abs().max() > 1e-4


def test_with_an_exact_score_its_error_falls_with_the_square_of_the_step() -> None:
    """DDIM with C = 0 follows an ODE: halving the steps divides the error by 2 or by 4."""
    schedule = SCHEDULES["linear"]
    case, rule = points(schedule), covariance.build("delta")

    def end(length: int, order: Any) -> Tensor:
        """At t = 20, before the data's own scale, from steps that are even in log-SNR."""
        lambdas = torch.from_numpy(schedule.b[1:] / schedule.alpha_bar[1:]).log()
        grid = torch.linspace(float(lambdas[20]), float(lambdas[-1]), length)
        timesteps = tuple(dict.fromkeys(int(i) + 1 for i in torch.searchsorted(lambdas, grid)))
        seen: dict[float, Tensor] = {}
        ancestral(
            case.denoiser,
            rule,
            timesteps,
            case.noise(),
            kernel=Ddim(),
            order=order,
            watch=seen.__setitem__,
        )
        return seen[timesteps[0]]

    truth = end(400, 2)
    first, second = (
        [(end(length, order) - truth).abs().mean() for length in (10, 20)] for order in (1, 2)
    )
    assert 1.5 < first[0] / first[1] < 2.5
    assert second[0] / second[1] > 3.0
    assert second[0] < first[0] / 2


def test_the_covariance_is_that_of_order_1() -> None:
    """Order 2 moves the mean and nothing else: with C the noise is what it was."""
    case, timesteps = points(SCHEDULES["linear"]), CHAINS["two"]
    rule = covariance.build("exact_diag")
    seen: dict[float, Tensor] = {}
    first: dict[float, Tensor] = {}
    second_order(case, rule, timesteps, kernel=Ddim(), watch=seen.__setitem__)
    ancestral(case.denoiser, rule, timesteps, case.noise(), kernel=Ddim(), watch=first.__setitem__)
    torch.testing.assert_close(seen[20], first[20])  # the first step is of first order


@pytest.mark.parametrize("method", ["exact_diag", "exact_full", "rademacher"])
@pytest.mark.parametrize("kernel", [Ddpm(), Ddim(), Ddim(eta=0.5)])
def test_any_method_and_kernel_has_it(method: str, kernel: Kernel) -> None:
    case = points(SCHEDULES["linear"])
    drawn = second_order(case, covariance.build(method), CHAINS["even"], kernel=kernel)
    again = second_order(case, covariance.build(method), CHAINS["even"], kernel=kernel)
    assert torch.isfinite(drawn.x).all() and torch.equal(drawn.x, again.x)


def test_the_gain_in_log_snr_adds_up() -> None:
    schedule = SCHEDULES["cosine"]
    last, *steps = reversed(transitions(schedule, CHAINS["even"]))
    assert last.log_snr_gain == inf
    whole = transition(schedule, CHAINS["even"][0], CHAINS["even"][-1])
    assert sum(step.log_snr_gain for step in steps) == pytest.approx(whole.log_snr_gain)


def test_the_scale_of_the_covariance() -> None:
    """A factor on Σ: 0 leaves the mean, 1 changes nothing, and noise grows with its root."""
    case, rule = points(SCHEDULES["linear"]), covariance.build("exact_diag")
    states: dict[float, Tensor] = {}
    for scale in (0.0, 1.0, 4.0):
        seen: dict[float, Tensor] = {}
        ancestral(
            case.denoiser,
            rule,
            CHAINS["two"],
            case.noise(),
            kernel=Ddpm(),
            covariance_scale=scale,
            watch=seen.__setitem__,
        )
        states[scale] = seen[20]
    torch.testing.assert_close(states[4.0] - states[0.0], 2 * (states[1.0] - states[0.0]))
    assert (states[1.0] - states[0.0]).abs().max() > 1e-3


def test_there_is_no_fourth() -> None:
    with pytest.raises(OcmError, match="order = 4: expected 1, 2 or 3"):
        Recipe((1, 2), covariance.build("delta"), Ddim(), order=4)  # type: ignore[arg-type]
