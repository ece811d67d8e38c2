"""Kernels of reinforcement learning on flows, against their own formulas on the path."""

from math import pi, sin, sqrt

import pytest
import torch
from torch.testing import assert_close

from ocm_core import covariance
from ocm_core.diffusion.kernels.cps import Cps
from ocm_core.diffusion.kernels.ddim import Ddim
from ocm_core.diffusion.kernels.ddpm import Ddpm
from ocm_core.diffusion.kernels.flow_grpo import FlowGrpo
from ocm_core.diffusion.kernels.precise import Precise
from ocm_core.diffusion.schedule import flow, predict_x0
from ocm_core.diffusion.transition import Transition, transition
from ocm_core.rng.noise import SampleNoise
from ocm_core.sampling.recipe import Recipe

from .doubles import PAIR, exact

SCHEDULE = flow(999)
KERNELS = [Cps(), Precise(), Precise(eta=0.5), FlowGrpo(a=0.3)]


def on_path(s: int, t: int) -> tuple[Transition, float, float, float]:
    """A step t → s, both ends of it on the path, and the factor there to unit variance at s."""
    end, begin = s / 1000, t / 1000
    return transition(SCHEDULE, s, t), begin, end, 1 / sqrt((1 - end) ** 2 + end**2)


def estimates(step: Transition) -> tuple[torch.Tensor, ...]:
    x, eps = torch.randn(2, 3, 4, dtype=torch.float64)
    return x, predict_x0(x, eps, step.alpha_bar_t, step.b_t), eps


@pytest.mark.parametrize(("s", "t"), [(10, 30), (500, 900), (900, 999)])
def test_flow_grpo_is_an_euler_maruyama_step_of_the_velocity(s: int, t: int) -> None:
    step, begin, end, unit = on_path(s, t)
    x, x0, eps = estimates(step)
    on = x * sqrt((1 - begin) ** 2 + begin**2)
    v = eps - x0
    g = 0.7 * sqrt(begin / (1 - (end if t == 999 else begin)))  # theirs, at s = 1 that of the end
    drift = v + g**2 / (2 * begin) * (on + (1 - begin) * v)
    kernel = FlowGrpo()
    assert_close(kernel.mean(step, x, x0, eps), unit * (on - (begin - end) * drift))
    assert kernel.floor(step) == pytest.approx(unit**2 * g**2 * (begin - end))


@pytest.mark.parametrize(("s", "t"), [(10, 30), (500, 900)])
def test_cps_and_precise_keep_the_coefficients_of_the_path(s: int, t: int) -> None:
    step, begin, end, unit = on_path(s, t)
    x, x0, eps = estimates(step)
    ratio = end * (1 - begin) / (begin * (1 - end))
    for kernel, noise in (
        (Cps(eta=0.4), end * sin(0.2 * pi)),
        (Precise(eta=0.8), end * sqrt(1 - ratio**0.64)),
    ):
        mean = (1 - end) * x0 + sqrt(end**2 - noise**2) * eps
        assert_close(kernel.mean(step, x, x0, eps), unit * mean)
        assert kernel.floor(step) == pytest.approx((unit * noise) ** 2)
    ddpm, same = Ddpm(), Precise(eta=sqrt(2))
    assert_close(same.mean(step, x, x0, eps), ddpm.mean(step, x, x0, eps))
    assert same.floor(step) == pytest.approx(ddpm.floor(step))
    assert same.gain(step) == pytest.approx(ddpm.gain(step))


@pytest.mark.parametrize("kernel", [Ddim(), Cps(eta=0.0), Precise(eta=0.0)], ids=repr)
@pytest.mark.parametrize("s", [0, 300])
def test_without_noise_a_step_is_that_of_ddim(kernel: Ddim, s: int) -> None:
    """Into data, too, where the log-SNR is infinite."""
    step = transition(SCHEDULE, s, 700)
    given, same = estimates(step), Ddim()
    assert kernel.floor(step) == 0.0
    assert_close(kernel.mean(step, *given), same.mean(step, *given))
    assert kernel.gain(step) == pytest.approx(same.gain(step))


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_the_gain_is_the_square_of_what_moves_the_mean(kernel: Ddpm) -> None:
    step = transition(SCHEDULE, 300, 700)
    x, x0, _ = estimates(step)
    moved = x0 + 0.1
    means = [
        kernel.mean(step, x, e, (x - sqrt(step.alpha_bar_t) * e) / sqrt(step.b_t))
        for e in (x0, moved)
    ]
    assert_close((means[1] - means[0]) ** 2 / 0.01, torch.full_like(x, kernel.gain(step)))


def test_the_covariance_that_they_leave_out_restores_the_spread() -> None:
    """CPS in four steps, under the true score: nearly the data's spread with C, half without."""
    data = PAIR.means.var(0, correction=0) + PAIR.std**2
    spread = {}
    for method in ("delta", "exact_full"):
        recipe = Recipe((20, 300, 700, 999), covariance.build(method), Cps(eta=0.5))
        drawn = recipe.draw(exact(PAIR, SCHEDULE), SampleNoise(0, range(20_000), (2,))).x
        spread[method] = float((drawn.var(0) / data).mean())
    assert abs(spread["exact_full"] - 1) < 0.08 and spread["delta"] < 0.7
