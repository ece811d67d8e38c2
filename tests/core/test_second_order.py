"""Second order: DPM-Solver++ 2M and SDE-DPM-Solver++ 2M as diffusers has them, and with a C."""

from collections.abc import Callable
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
from ocm_core.diffusion.mixture import Mixture
from ocm_core.diffusion.schedule import Schedule
from ocm_core.diffusion.timesteps import Timesteps
from ocm_core.diffusion.transition import transition, transitions
from ocm_core.rng.noise import SampleNoise
from tests.core.doubles import Ddim, Ddpm, WaveNetwork, ancestral, ddim, ddpm, exact

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
    return Case(exact(modes, schedule), (2,), Clip(), {})


def clipped_images(schedule: Schedule) -> Case:
    """Dynamic thresholding whose threshold is 1 at least and at most clamps to [-1, 1]."""
    clip = Clip(x0=1.0)
    return Case(Denoiser(WaveNetwork(), schedule), (3, 4, 4), clip, {"thresholding": True})


def ours(case: Case, timesteps: Timesteps, solver: str, order: int = 2) -> Tensor:
    kernel, method = SOLVERS[solver]
    given = case.denoiser, covariance.build(method), timesteps, case.noise()
    return ancestral(*given, kernel=kernel, order=order, clip=case.clip).x


def theirs(case: Case, timesteps: Timesteps, solver: str) -> Tensor:
    """diffusers' own loop on the same timesteps (theirs begin at 0) and the same noise."""
    schedule = case.denoiser.schedule
    options = {"num_train_timesteps": schedule.steps, "solver_order": 2, **case.options}
    scheduler = DPMSolverMultistepScheduler(
        trained_betas=schedule.betas[1:], algorithm_type=solver, **options
    )
    # its own table is a product in float32, in which 1 - ᾱ_1 = 1e-4 has lost four digits
    scheduler.alphas_cumprod = torch.from_numpy(schedule.alpha_bar[1:])
    scheduler.set_timesteps(timesteps=[t - 1 for t in reversed(timesteps)])
    return looped(scheduler, case, lambda noise: {"variance_noise": noise.normal()})


def looped(scheduler: Any, case: Case, options: Callable[[SampleNoise], dict[str, Any]]) -> Tensor:
    noise = case.noise()
    x = noise.normal()
    with torch.no_grad():
        for t in scheduler.timesteps:
            eps = case.denoiser.predict(x, int(t) + 1).eps
            x = scheduler.step(eps, t, x, **options(noise)).prev_sample
    return x


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("timesteps", CHAINS)
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("make", [points, clipped_images])
def test_it_is_diffusers_solver(make: Any, schedule: str, timesteps: str, solver: str) -> None:
    case, chain = make(SCHEDULES[schedule]), CHAINS[timesteps]
    found, expected = ours(case, chain, solver), theirs(case, chain, solver)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)


def unipc(case: Case, timesteps: Timesteps) -> Tensor:
    """diffusers' own loop on our timesteps, which its `set_timesteps` does not take."""
    schedule = case.denoiser.schedule
    scheduler = UniPCMultistepScheduler(trained_betas=schedule.betas[1:], **case.options)
    scheduler.set_timesteps(len(timesteps))
    scheduler.timesteps = torch.tensor([t - 1 for t in reversed(timesteps)])
    marginals = [schedule.marginal(t) for t in reversed(timesteps)]
    scheduler.sigmas = torch.tensor([*(sqrt(b / alpha) for alpha, b in marginals), 0.0])
    return looped(scheduler, case, lambda noise: {})


@pytest.mark.parametrize("timesteps", CHAINS)
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("make", [points, clipped_images])
def test_corrected_it_is_unipc_of_diffusers(make: Any, schedule: str, timesteps: str) -> None:
    case, chain = make(SCHEDULES[schedule]), CHAINS[timesteps]
    second, third = (ours(case, chain, "dpmsolver++", order) for order in (2, 3))
    torch.testing.assert_close(third, unipc(case, chain), atol=1e-5, rtol=0)
    assert len(chain) <= 2 or (third - second).abs().max() > 1e-4


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
        watch = {"order": order, "watch": seen.__setitem__}
        ddim(case.denoiser, rule, timesteps, case.noise(), **watch)
        return seen[timesteps[0]]

    truth = end(400, 2)
    first, second = (
        [(end(length, order) - truth).abs().mean() for length in (10, 20)] for order in (1, 2)
    )
    assert 1.5 < first[0] / first[1] < 2.5
    assert second[0] / second[1] > 3.0
    assert second[0] < first[0] / 2


def test_the_gain_in_log_snr_adds_up() -> None:
    schedule = SCHEDULES["cosine"]
    last, *steps = reversed(transitions(schedule, CHAINS["even"]))
    assert last.log_snr_gain == inf
    whole = transition(schedule, CHAINS["even"][0], CHAINS["even"][-1])
    assert sum(step.log_snr_gain for step in steps) == pytest.approx(whole.log_snr_gain)


def test_the_scale_of_the_covariance() -> None:
    case, rule = points(SCHEDULES["linear"]), covariance.build("exact_diag")
    states: dict[float, Tensor] = {}
    for scale in (0.0, 1.0, 4.0):
        seen: dict[float, Tensor] = {}
        watch = {"covariance_scale": scale, "watch": seen.__setitem__}
        ddpm(case.denoiser, rule, CHAINS["two"], case.noise(), **watch)
        states[scale] = seen[20]
    torch.testing.assert_close(states[4.0] - states[0.0], 2 * (states[1.0] - states[0.0]))
    assert (states[1.0] - states[0.0]).abs().max() > 1e-3
