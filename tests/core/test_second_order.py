"""Means of several predictions: DPM-Solver++ 2M, UniPC and iPNDM as diffusers has them."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf, sqrt
from typing import Any

import pytest
import torch
from diffusers import DPMSolverMultistepScheduler, IPNDMScheduler, UniPCMultistepScheduler
from torch import Tensor

from ocm_core import covariance
from ocm_core.covariance.interface import Clip, ReverseStep
from ocm_core.diffusion import schedule as schedules
from ocm_core.diffusion import timesteps as rules
from ocm_core.diffusion.denoiser import Denoiser
from ocm_core.diffusion.kernels import Kernel
from ocm_core.diffusion.mixture import Mixture
from ocm_core.diffusion.schedule import Schedule
from ocm_core.diffusion.timesteps import Timesteps
from ocm_core.diffusion.transition import transition, transitions
from ocm_core.errors import OcmError
from ocm_core.rng.noise import SampleNoise
from ocm_core.sampling.order import means_of_order
from ocm_core.sampling.recipe import Recipe
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


def ours(case: Case, timesteps: Timesteps, solver: str, order: Any = 2) -> Tensor:
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


class Ipndm(IPNDMScheduler):
    """diffusers' own sum and step, on our timesteps and from ε̂; it knows v alone."""

    def __init__(self, schedule: Schedule, timesteps: Timesteps) -> None:
        super().__init__()
        marginals = [schedule.marginal(t) for t in reversed(timesteps)]
        self.set_timesteps(len(timesteps))
        self.timesteps = torch.tensor([t - 1 for t in reversed(timesteps)])
        self.alphas = torch.tensor([*(sqrt(alpha_bar) for alpha_bar, _ in marginals), 1.0])
        self.betas = torch.tensor([*(sqrt(b) for _, b in marginals), 0.0])

    def step(self, model_output: Tensor, timestep: Any, sample: Tensor) -> Any:
        i = self.index_for_timestep(timestep)
        v = (model_output - self.betas[i] * sample) / self.alphas[i]
        return super().step(v, timestep, sample)


@pytest.mark.parametrize("timesteps", CHAINS)
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_ipndm_is_that_of_diffusers(schedule: str, timesteps: str) -> None:
    case, chain = points(SCHEDULES[schedule]), CHAINS[timesteps]
    found = ours(case, chain, "dpmsolver++", "ipndm")
    expected = looped(Ipndm(case.denoiser.schedule, chain), case, lambda noise: {})
    # at cosine's T x̂_0 has a thousand times the error of ε̂
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)
    first = ours(case, chain, "dpmsolver++", 1)
    assert len(chain) == 1 or (found - first).abs().max() > 1e-3


def test_ipndm_clamps_each_x0_before_the_sum() -> None:
    """With x̂_0 at its limit everywhere, ε̂ is derived from it, and the sum of one is DDIM's."""
    schedule, clip = SCHEDULES["linear"], Clip(x0=0.3)
    model = Denoiser(WaveNetwork(), schedule)
    x = 5 * torch.randn(4, 3, 2, 2, generator=torch.Generator().manual_seed(0))
    steps = [ReverseStep(t, Ddim(), clip) for t in transitions(schedule, (10, 300, 700))]
    mean, known = means_of_order("ipndm", Ddim(), covariance.build("delta")), []
    sums = (1.0,), (3 / 2, -1 / 2), (23 / 12, -16 / 12, 5 / 12)
    for step, weights in zip(steps, sums, strict=True):
        at, seen = step.transition, model.predict(x, step.transition.t)
        x0 = ((x - sqrt(at.b_t) * seen.eps) / sqrt(at.alpha_bar_t)).clamp(-0.3, 0.3)
        known.insert(0, (x - sqrt(at.alpha_bar_t) * x0) / sqrt(at.b_t))
        eps = sum(w * e for w, e in zip(weights, known, strict=True))
        clean = (x - sqrt(at.b_t) * eps) / sqrt(at.alpha_bar_t)
        x = mean(step, seen)
        torch.testing.assert_close(x, sqrt(at.alpha_bar_s) * clean + sqrt(at.b_s) * eps)


def test_ipndm_is_for_ddim() -> None:
    rule = covariance.build("beta_tilde")
    with pytest.raises(OcmError, match="order = ipndm is for ddim; for ddpm use 1, 2 or 3"):
        Recipe(CHAINS["even"], rule, Ddpm(), order="ipndm")


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
    first, second, fourth = (
        [(end(length, order) - truth).abs().mean() for length in (10, 20)]
        for order in (1, 2, "ipndm")
    )
    assert fourth[1] < first[1]
    assert 1.5 < first[0] / first[1] < 2.5
    assert second[0] / second[1] > 3.0
    assert second[0] < first[0] / 2


def test_the_gain_in_log_snr_adds_up() -> None:
    schedule = SCHEDULES["cosine"]
    last, *steps = reversed(transitions(schedule, CHAINS["even"]))
    assert last.log_snr_gain == inf
    whole = transition(schedule, CHAINS["even"][0], CHAINS["even"][-1])
    assert sum(step.log_snr_gain for step in steps) == pytest.approx(whole.log_snr_gain)


@pytest.mark.parametrize("kind", ["exact_diag", "exact_full"])
def test_the_factor_is_on_what_x0_adds_to_the_variance(kind: str) -> None:
    """f = 0 leaves `beta_tilde`, f = 1 the method, and Σ is linear between them."""
    case, method = points(SCHEDULES["linear"]), covariance.build(kind)
    seen = case.denoiser.predict(case.noise().normal(), 700)
    step = ReverseStep(transition(case.denoiser.schedule, 300, 700), Ddpm(), Clip())
    covariances = method.step_covariance(seen, case.noise())
    none, half, whole = (
        covariances(replace(step, posterior_factor=f)).diagonal(seen.x) for f in (0.0, 0.5, 1.0)
    )
    torch.testing.assert_close(none, torch.full_like(none, step.transition.beta_tilde))
    torch.testing.assert_close(half, 0.5 * (none + whole))
    torch.testing.assert_close(whole, covariances(step).diagonal(seen.x))
    assert (whole - none).abs().max() > 1e-3


def test_the_factor_reaches_the_samples() -> None:
    """With order 2 and f = 0 any method draws what `beta_tilde` draws: SDE-DPM-Solver++ 2M."""
    case, last = points(SCHEDULES["linear"]), list[Tensor]()
    for kind, factor in (("beta_tilde", 1.0), ("exact_diag", 0.0), ("exact_diag", 0.5)):
        asked = {"order": 2, "posterior_factor": factor}
        last.append(
            ddpm(case.denoiser, covariance.build(kind), CHAINS["two"], case.noise(), **asked).x
        )
    torch.testing.assert_close(last[0], last[1])
    assert (last[0] - last[2]).abs().max() > 1e-3
