"""Restoration: closed forms of Gaussian data and of a mixture, and what is refused."""

from typing import Any

import numpy as np
import pytest
import torch

from ocm_core import covariance
from ocm_core.diffusion import schedule as schedules
from ocm_core.diffusion import timesteps as rules
from ocm_core.diffusion.gaussian import Correlated, Diagonal, full
from ocm_core.diffusion.kernels.ddim import Ddim
from ocm_core.diffusion.kernels.ddpm import Ddpm
from ocm_core.errors import OcmError
from ocm_core.metrics.crps import crps, inside
from ocm_core.sampling.recipe import Recipe
from ocm_core.uses.linear import Measured
from ocm_core.uses.restore import Algorithm, AlgorithmName, Restored, RestoringStepper, restore
from tests.core import test_structured as structured
from tests.core.doubles import PAIR, Replay, exact
from tests.core.test_structured import BASIS, POWERS, SHAPE

D, SEEN, SIGMA = 32, 12, 0.3
DRAW = torch.Generator().manual_seed(0)


def drawn(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=DRAW, dtype=torch.float64)


class Matrix:
    """A dense operator."""

    def __init__(self, matrix: torch.Tensor, shape: tuple[int, ...] = SHAPE) -> None:
        self.matrix, self.shape = matrix, shape

    def A(self, x: torch.Tensor) -> torch.Tensor:  # noqa: N802
        return x.flatten(1) @ self.matrix.T

    def A_adjoint(self, y: torch.Tensor) -> torch.Tensor:  # noqa: N802
        return (y @ self.matrix).view(-1, *self.shape)


class Masked:
    """Entries that are seen, in place."""

    def __init__(self, mask: torch.Tensor) -> None:
        self.mask = mask

    def A(self, x: torch.Tensor) -> torch.Tensor:  # noqa: N802
        return self.mask * x

    A_adjoint = A


VECTORS = BASIS.combine(torch.eye(D, dtype=torch.float64).view(-1, *SHAPE)).flatten(1).T
PRIOR = VECTORS @ POWERS.flatten().diag() @ VECTORS.T  # covariance of the data
SOME = drawn(SEEN, D) / D**0.5


def measured(matrix: torch.Tensor = SOME, sigma: float = SIGMA, count: int = 1) -> Measured:
    x0 = structured.data(count).flatten(1)
    noisy = x0 @ matrix.T + sigma * drawn(count, len(matrix))
    return Measured(noisy, Matrix(matrix), sigma)


def truth(seen: Measured, prior: torch.Tensor = PRIOR) -> tuple[torch.Tensor, torch.Tensor]:
    """The mean and covariance of x_0 given y, by dense matrices."""
    matrix = seen.physics.matrix  # type: ignore[attr-defined]
    inner = matrix @ prior @ matrix.T + seen.sigma**2 * torch.eye(len(matrix))
    gain = prior @ matrix.T @ torch.linalg.inv(inner)
    return seen.y @ gain.T, prior - gain @ matrix @ prior


def recipe(method: str, steps: int = 5, **how: Any) -> Recipe:
    timesteps = rules.even(structured.STEPS, steps)
    return Recipe(timesteps, covariance.build(method), how.pop("kernel", Ddpm()), **how)


def restored(
    seen: Measured, name: AlgorithmName = "kalman", method: str = "analytic+dct", **how: Any
) -> Restored:
    steps, options = how.pop("steps", 5), how.pop("options", {})
    given = recipe(method, steps), Algorithm(name, **options)
    return restore(how.pop("denoiser", structured.denoiser()), seen, *given, **how)


def close(found: Restored, mean: torch.Tensor, cov: torch.Tensor) -> None:
    """Compare draws of one image with a Gaussian, as far as their number tells."""
    x, n = found.draws[0].flatten(1), found.draws.shape[1]
    whitened = torch.linalg.solve_triangular(
        torch.linalg.cholesky(cov), (x - mean).T, upper=False
    ).T
    assert float(whitened.mean(0).abs().max()) < 4.5 / n**0.5
    assert float((whitened.T @ whitened / n - torch.eye(x.shape[1])).abs().max()) < 6 / n**0.5


@pytest.mark.parametrize("steps", [1, 7])
@pytest.mark.parametrize("method", ["analytic+dct", "exact_full"])
def test_of_a_gaussian_kalman_draws_the_posterior_in_any_number_of_steps(
    method: str, steps: int
) -> None:
    if method == "exact_full" and steps > 1:
        steps = 3
    seen = measured()
    tight = {"tolerance": 1e-9}
    found = restored(seen, method=method, steps=steps, count=3000, batch_size=1500, options=tight)
    mean, cov = truth(seen)
    close(found, mean[0], cov)
    assert found.passes == steps * (1 if "+" in method else 1 + 2 * D)
    torch.testing.assert_close(found.std[0].flatten(), found.draws[0].flatten(1).std(0))


def at(t: int, name: AlgorithmName, seen: Measured, normals: Any, **options: Any) -> Any:
    """One step from x_t into the data, with noise that is given: x_t, and what came of it."""
    denoiser, how = structured.denoiser(), Algorithm(name, **{"tolerance": 1e-12, **options})
    method = "analytic+dct" if how.takes_method else "beta_tilde"
    one = Recipe((t,), covariance.build(method), Ddpm())
    stepper = RestoringStepper(one, denoiser, seen, Replay(normals[1:]), how)
    x = drawn(len(seen.y), *SHAPE)
    predicted = stepper.predict(denoiser, x, t, None)
    return x, stepper.step(predicted, t, Replay(normals[:1]))


def given_both(t: int, x: torch.Tensor, seen: Measured) -> tuple[torch.Tensor, torch.Tensor]:
    """The mean and covariance of x_0 given x_t and y, by dense matrices."""
    alpha_bar, b = structured.SCHEDULE.marginal(t)
    prior = VECTORS @ structured.exact(t).flatten().diag() @ VECTORS.T
    x0 = x.flatten(1) @ (prior * alpha_bar**0.5 / b)
    matrix = seen.physics.matrix  # type: ignore[attr-defined]
    rest = Measured(seen.y - x0 @ matrix.T, seen.physics, seen.sigma)
    mean, cov = truth(rest, prior)
    return x0 + mean, cov


@pytest.mark.parametrize("t", [1, 30, 100])
def test_one_step_has_the_exact_mean_given_both(t: int) -> None:
    seen = measured(count=4)
    zeros = torch.zeros(4, *SHAPE, dtype=torch.float64), torch.zeros(4, SEEN, dtype=torch.float64)
    # without noise the draw is the solution of a system whose right side is y - A x̂_0
    x, found = at(t, "kalman", seen, zeros)
    expected, _ = given_both(t, x, seen)
    torch.testing.assert_close(found.flatten(1), expected)
    x, found = at(t, "mmps", seen, zeros, iterations=SEEN + 2)
    torch.testing.assert_close(found.flatten(1), given_both(t, x, seen)[0])


def test_the_noise_of_a_draw_has_the_covariance_given_both() -> None:
    """By unit vectors: the draw is linear in ξ and n, whose matrix is a root of the covariance."""
    t, units = 30, torch.eye(D + SEEN, dtype=torch.float64)
    one = measured()
    seen = Measured(one.y.expand(len(units), -1), one.physics, one.sigma)
    normals = units[:, :D].view(-1, *SHAPE), units[:, D:]
    DRAW.manual_seed(1)
    x, found = at(t, "kalman", seen, normals)
    mean, cov = given_both(t, x, seen)
    root = found.flatten(1) - mean
    torch.testing.assert_close(root.T @ root, cov, atol=1e-7, rtol=0)


def test_mmps_comes_to_the_posterior_of_a_gaussian_with_many_steps() -> None:
    seen = measured()
    mean, cov = truth(seen)
    gaps = []
    for steps in (10, 25, 100):
        found = restored(
            seen, "mmps", steps=steps, count=500, batch_size=500, options={"iterations": SEEN}
        )
        assert found.passes == steps * (1 + 2 * SEEN)
        x = found.draws[0].flatten(1)
        assert float((x.mean(0) - mean[0]).norm() / (cov.trace() / 500).sqrt()) < 2
        gaps.append(1 - float(x.var(0).sum() / cov.trace()))
    assert gaps[0] > gaps[1] > gaps[2] and gaps[2] < 0.2  # of a schedule of 100 steps


def test_all_seen_it_is_denoising() -> None:
    """A = I: the posterior is that of the image alone, coefficient by coefficient."""
    seen = measured(torch.eye(D, dtype=torch.float64))
    found = restored(seen, count=3000, batch_size=3000, options={"tolerance": 1e-9})
    kept = POWERS / (POWERS + SIGMA**2)
    mean = BASIS.combine(kept * BASIS.coefficients(seen.y.view(1, *SHAPE)))
    spread = VECTORS @ (kept * SIGMA**2).flatten().diag() @ VECTORS.T
    close(found, mean.flatten(), spread)


@pytest.mark.parametrize("kind", ["diagonal", "correlated", "magnitude", "full"])
def test_conjugate_gradients_solve_what_a_dense_matrix_does(kind: str) -> None:
    variance, magnitude = drawn(1, *SHAPE).square() + 0.1, drawn(3, *SHAPE).square() + 0.1
    root = drawn(3, D, D)
    found: Any = {
        "diagonal": Diagonal(magnitude),
        "correlated": Correlated(BASIS, variance),
        "magnitude": Correlated(BASIS, variance, magnitude),
        "full": full(root @ root.mT),
    }[kind]
    unit = torch.eye(D, dtype=torch.float64)
    columns = [found.scale(e.view(1, *SHAPE).expand(3, *SHAPE)).flatten(1) for e in unit]
    roots = torch.stack(columns, 2)
    matrix, v = roots @ roots.mT, drawn(3, *SHAPE)
    times = (matrix @ v.flatten(1).unsqueeze(-1)).view_as(v)
    torch.testing.assert_close(found.times(v), times)
    seen, residual = measured(), drawn(3, SEEN)
    inner = SOME @ matrix @ SOME.T + SIGMA**2 * torch.eye(SEEN, dtype=torch.float64)
    solved = torch.linalg.solve(inner, residual.unsqueeze(-1))
    expected = (matrix @ SOME.T @ solved).view_as(v)
    torch.testing.assert_close(seen.gain(found.times, residual, 1e-12), expected)


def test_the_rivals_are_what_their_papers_say() -> None:
    t, seen = 40, measured(count=3)
    alpha_bar, b = structured.SCHEDULE.marginal(t)
    shrunk = VECTORS @ (structured.exact(t).flatten() / b * alpha_bar**0.5).diag() @ VECTORS.T
    unused = torch.zeros(3, *SHAPE), torch.zeros(3, SEEN)
    x, found = at(t, "dps", seen, unused, scale=0.7)
    x = x.flatten(1).requires_grad_()
    (gradient,) = torch.autograd.grad((seen.y - x @ shrunk @ SOME.T).norm(dim=1).sum(), x)
    torch.testing.assert_close(found.flatten(1), (x @ shrunk - 0.7 * gradient).detach())
    x, found = at(t, "pigdm", seen, unused)
    x0 = x.flatten(1) @ shrunk
    inner = SOME @ SOME.T + SIGMA**2 / b * torch.eye(SEEN, dtype=torch.float64)
    pulled = torch.linalg.solve(inner, (seen.y - x0 @ SOME.T).T).T @ SOME @ shrunk
    torch.testing.assert_close(found.flatten(1), x0 + alpha_bar**0.5 * pulled)


@pytest.mark.parametrize("name", ["kalman", "mmps"])
def test_of_a_mixture_draws_are_those_of_its_posterior(name: AlgorithmName) -> None:
    """Two modes, of which a sum of coordinates tells a little: weights, mean and variance."""
    matrix, sigma, schedule = (
        torch.tensor([[0.6, 0.2]], dtype=torch.float64),
        0.7,
        schedules.linear(1000),
    )
    seen = Measured(torch.tensor([[0.25]], dtype=torch.float64), Matrix(matrix, (2,)), sigma)
    fresh = torch.from_numpy(PAIR.draw(400_000, np.random.default_rng(0)))
    weights = (-0.5 * ((seen.y - fresh @ matrix.T) / sigma).square().squeeze(1)).softmax(0)
    mean = weights @ fresh
    spread = (weights * (fresh - mean).T) @ (fresh - mean)
    method = covariance.build("exact_full" if name == "kalman" else "beta_tilde")
    steps = Recipe(rules.even(1000, 100), method, Ddpm())
    options = {"count": 3000, "batch_size": 3000}
    found = restore(exact(PAIR, schedule), seen, steps, Algorithm(name, iterations=1), **options)
    x = found.draws[0]
    torch.testing.assert_close(x.mean(0), mean, atol=0.06, rtol=0)
    torch.testing.assert_close(x.T.cov(), spread, atol=0.08, rtol=0)
    right = float(weights[fresh[:, 0] > 0].sum())
    assert float((x[:, 0] > 0).double().mean()) == pytest.approx(right, abs=0.04)


def test_a_draw_is_the_same_in_any_batch_and_number() -> None:
    seen = measured(count=3)
    whole = restored(seen, count=5, batch_size=100, seed=3)
    for size in (1, 4):
        torch.testing.assert_close(restored(seen, count=5, batch_size=size, seed=3), whole)
    fewer = restored(seen, count=2, seed=3)
    torch.testing.assert_close(fewer.draws, whole.draws[:, :2])
    assert not torch.equal(restored(seen, count=5, seed=4).draws, whole.draws)


def test_scores_of_draws() -> None:
    """Of a normal distribution the CRPS is known; places of the truth among draws are even."""
    draws, truths = drawn(4000, 19, 3), drawn(4000, 3)
    assert float(crps(draws, truths).mean()) == pytest.approx(torch.pi**-0.5, abs=0.01)
    assert float(inside(draws, truths).mean()) == pytest.approx(0.9, abs=0.01)
    assert float(inside(drawn(4000, 39, 3), truths).mean()) == pytest.approx(0.9, abs=0.01)
    pairs = (draws.unsqueeze(1) - draws.unsqueeze(2)).abs().sum((1, 2)) / (19 * 18)
    direct = (draws - truths.unsqueeze(1)).abs().mean(1) - 0.5 * pairs
    torch.testing.assert_close(crps(draws, truths), direct)


SEEN_HALF = (drawn(*SHAPE) > 0).double()


class Squared(Masked):
    def A(self, x: torch.Tensor) -> torch.Tensor:  # noqa: N802
        return self.mask * x**2


class Shifted(Masked):
    def A_adjoint(self, x: torch.Tensor) -> torch.Tensor:  # noqa: N802
        return (self.mask * x).roll(1, -1)


class Nonlinear:
    def A(self, x: torch.Tensor) -> torch.Tensor:  # noqa: N802
        return x


IMAGES = drawn(2, *SHAPE)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"sigma": 0.0}, "sigma = 0: .* singular, or nearly so"),
        ({"sigma": -1.0}, "sigma = -1: expected"),
        ({"sigma": float("nan")}, "sigma = nan: expected"),
        ({"y": IMAGES / 0}, "y: has entries that are no numbers"),
        ({"y": IMAGES[:0]}, "y: expected a tensor of measurements"),
        ({"y": (127 * IMAGES).to(torch.uint8)}, "y: expected a tensor"),
        ({"y": drawn(2, 2, 4, 5)}, r"Masked does not take y of shape \(2, 2, 4, 5\)"),
        ({"physics": Matrix(SOME)}, "Matrix does not take y of shape"),
        ({"physics": Squared(SEEN_HALF)}, "is not the adjoint of A|is not linear"),
        ({"physics": Shifted(SEEN_HALF)}, "A_adjoint is not the adjoint of A"),
        ({"physics": Nonlinear()}, "Nonlinear has no A and A_adjoint"),
        ({"physics": Masked(drawn(2, *SHAPE))}, r"Masked gives \(2, 2, 4, 4\) for an image"),
        ({"y": drawn(2, 2, 4, 8), "physics": Masked(1 + 0 * drawn(8))}, "the spectrum of 'analy"),
        ({"method": "beta"}, "method 'beta': no covariance of x_0 given x_t"),
        ({"method": "lanczos"}, "method 'lanczos': no covariance"),
        ({"kernel": Ddim(), "method": "exact_diag"}, "steps are those of DDPM, of order 1"),
        ({"order": 2}, "steps are those of DDPM, of order 1"),
        ({"count": 1}, "count = 1: a deviation takes 2 draws"),
        ({"iterations": 0}, "iterations = 0: expected 1 or more"),
        ({"name": "klman"}, "algorithm: 'klman' is unknown; did you mean 'kalman'"),
    ],
)
def test_what_cannot_be_is_refused_by_name(given: dict[str, Any], said: str) -> None:
    how = {"name": "kalman", "iterations": 3, "y": IMAGES, "physics": Masked(SEEN_HALF)}
    how |= {"sigma": SIGMA, "method": "analytic+dct", "count": 2} | given
    with pytest.raises(OcmError, match=said):
        algorithm = Algorithm(how.pop("name"), how.pop("iterations"))
        seen = Measured(how.pop("y"), how.pop("physics"), how.pop("sigma"))
        count = how.pop("count")
        restore(
            structured.denoiser(), seen, recipe(how.pop("method"), **how), algorithm, count=count
        )


def test_images_that_the_network_does_not_take_are_refused() -> None:
    seen = Measured(drawn(1, 4), Matrix(drawn(4, 3), (3,)), 0.1)
    with pytest.raises(OcmError, match=r"images of shape \(3,\), as Aᵀ y: the network"):
        restored(seen, "mmps", denoiser=exact(PAIR, structured.SCHEDULE))


def test_a_head_that_is_missing_is_named() -> None:
    seen = Measured(IMAGES, Masked(SEEN_HALF), SIGMA)
    with pytest.raises(OcmError, match="method 'ocm' needs a trained head"):
        restored(seen, method="ocm")


def test_without_noise_what_was_seen_is_kept() -> None:
    """σ = 0 where the system is regular on what is seen: y itself comes back there."""
    seen = Measured(SEEN_HALF * IMAGES, Masked(SEEN_HALF), 0.0)
    found = restored(seen, count=2, options={"tolerance": 1e-7})
    kept = (SEEN_HALF * found.draws).flatten(0, 1)
    torch.testing.assert_close(kept, seen.y.repeat_interleave(2, 0), atol=1e-5, rtol=0)
    assert float(((1 - SEEN_HALF) * found.std).sum()) > 1
