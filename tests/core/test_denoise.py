"""Error bars in one pass: closed forms of Gaussian data and of a mixture, and what is refused."""

from typing import Any

import numpy as np
import pytest
import torch

from ocm_core import covariance
from ocm_core.diffusion import schedule as schedules
from ocm_core.diffusion.denoiser import Denoiser, TimeConvention
from ocm_core.diffusion.schedule import q_sample
from ocm_core.errors import OcmError
from ocm_core.rng.noise import SampleNoise
from ocm_core.uses import denoise as uses
from tests.core import test_structured as structured
from tests.core.doubles import PAIR, exact
from tests.networks.test_converted import GaussianScore

LINEAR, VARIANCE = schedules.linear(1000), 0.2
SIGMAS = np.sqrt(LINEAR.b[1:] / LINEAR.alpha_bar[1:])


def draw(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def gaussian() -> Denoiser:
    """The score of independent pixels."""
    network = GaussianScore(LINEAR, VARIANCE, "epsilon").eval()
    return Denoiser(network, LINEAR, TimeConvention(0, 1 / 1000))


def denoised(denoiser: Denoiser, images: torch.Tensor, method: str, *args: Any, **more: Any) -> Any:
    return uses.denoise(denoiser, images, covariance.build(method), *args, **more)


@pytest.mark.parametrize("shape", [(1, 6, 5), (3, 4, 4)])
@pytest.mark.parametrize("t", [1, 40, 700, 1000])
def test_of_a_gaussian_mean_and_deviation_are_exact(t: int, shape: tuple[int, ...]) -> None:
    sigma, images = float(SIGMAS[t - 1]), draw(5, *shape)
    found = denoised(gaussian(), images, "exact_diag", sigma)
    assert found.timestep.tolist() == [t] * 5 and found.sigma.tolist() == [sigma] * 5
    shrunk = VARIANCE / (VARIANCE + sigma**2)
    torch.testing.assert_close(found.mean, shrunk * images)
    torch.testing.assert_close(found.std, torch.full_like(images, sigma * shrunk**0.5))


def test_between_two_timesteps_it_is_nearly_so() -> None:
    sigma = draw(200).abs() + 0.2
    images = draw(200, 1, 4, 4)
    found = denoised(gaussian(), images, "exact_diag", sigma)
    assert len({*found.timestep.tolist()}) > 50
    shrunk = (VARIANCE / (VARIANCE + sigma**2)).view(-1, 1, 1, 1)
    deviation = (shrunk.sqrt() * sigma.view(-1, 1, 1, 1)).expand_as(images)
    torch.testing.assert_close(found.std, deviation, rtol=0.01, atol=0)
    torch.testing.assert_close(found.mean, shrunk * images, rtol=0.02, atol=0)


@pytest.mark.parametrize("name", ["analytic+dct", "exact_full"])
def test_a_correlated_gaussian_has_its_whole_density(name: str) -> None:
    t, denoiser, x0 = 30, structured.denoiser(), structured.data(400)
    x = q_sample(x0, structured.drawn(*x0.shape), *denoiser.schedule.marginal(t))
    noise, method = SampleNoise(0, range(400), structured.SHAPE), covariance.build(name)
    posterior = uses.posteriors(denoiser, {name: method}, x, t, noise)[name]
    rho = structured.exact(t)
    alpha_bar, b = denoiser.schedule.marginal(t)
    kept = structured.BASIS.coefficients(x) * alpha_bar**0.5 * rho / b
    torch.testing.assert_close(posterior.mean, structured.BASIS.combine(kept))
    deviation = structured.BASIS.spread(rho.view(1, *rho.shape)).sqrt().expand_as(x0)
    sigma = (b / alpha_bar) ** 0.5
    found = denoised(denoiser, x / alpha_bar**0.5, name, sigma)
    torch.testing.assert_close(found.std, deviation)
    fit = uses.fit(posterior, x0)
    entropy = 0.5 * float((2 * np.pi * np.e * rho).log().mean())
    assert float(fit.nll.mean()) == pytest.approx(entropy, abs=4 * (1 / (2 * 32 * 400)) ** 0.5)
    torch.testing.assert_close(fit.coverage.mean(0), uses.SHARES.double(), atol=0.02, rtol=0)
    assert float(fit.error.mean() / fit.variance.mean()) == pytest.approx(1, abs=0.05)


@pytest.mark.parametrize("t", [5, 300, 600])
def test_of_a_mixture_they_are_those_of_its_posterior(t: int) -> None:
    y, sigma = draw(50, 2, seed=t), float(SIGMAS[t - 1])
    found = denoised(exact(PAIR, LINEAR), y, "exact_diag", sigma)
    one = torch.ones(50, 1, dtype=torch.float64)
    mean, matrix = PAIR.posterior(y, one, sigma**2 * one)
    torch.testing.assert_close(found.mean, mean)
    torch.testing.assert_close(found.std, matrix.diagonal(dim1=1, dim2=2).sqrt())


def test_limits_and_a_covariance_that_is_not_positive() -> None:
    """x̂_0 stays in [-1, 1]; a head below zero is at the floor, which is counted."""

    class Negative(type(covariance.build("exact_diag"))):  # type: ignore[misc]
        def c(self, prediction: Any) -> torch.Tensor:
            return torch.full_like(prediction.x, -0.1)

    images, clip = 5 * draw(3, 1, 4, 4), uses.Clip(x0=1.0, c_max=1.0)
    method, t = Negative(label="negative"), 200
    found = uses.denoise(gaussian(), images, method, float(SIGMAS[t - 1]), clip=clip)
    assert float(found.mean.abs().max()) == 1.0
    floor = LINEAR.beta_tilde(1, 2) ** 0.5
    torch.testing.assert_close(found.std, torch.full_like(images, floor))
    noise = SampleNoise(0, range(3), (1, 4, 4))
    seen = uses.posteriors(gaussian(), {"": method}, images, t, noise, clip=clip)[""]
    assert seen.counter.read() == {"entries": 48, "below": 48, "above": 0}
    assert bool(uses.fit(seen, images).nll.isfinite().all())


@pytest.mark.parametrize("method", ["rademacher", "exact_diag", "analytic+dct"])
def test_batches_do_not_matter(method: str) -> None:
    sigma = torch.tensor([0.3, 0.9, 0.3, 0.5, 0.3, 0.9, 0.3])
    images, denoiser = structured.drawn(7, *structured.SHAPE), structured.denoiser()
    whole = denoised(denoiser, images, method, sigma, seed=3)
    for size in (1, 2):
        parts = denoised(denoiser, images, method, sigma, seed=3, batch_size=size)
        for one, other in zip(parts, whole, strict=True):
            torch.testing.assert_close(one, other)
    alone = denoised(denoiser, images[:1], method, 0.3, seed=3)
    torch.testing.assert_close(alone.std[0], whole.std[0])


@pytest.mark.parametrize("channels", [1, 3])
def test_the_noise_of_each_image_is_estimated(channels: int) -> None:
    ramp = torch.linspace(-1, 1, 64, dtype=torch.float64)
    smooth = torch.outer(ramp, ramp.square()).expand(4, channels, 64, 64)
    sigma = torch.tensor([0.05, 0.2, 0.7, 3.0], dtype=torch.float64)
    images = smooth + sigma.view(-1, 1, 1, 1) * draw(4, channels, 64, 64)
    found = denoised(gaussian(), images, "rademacher")
    torch.testing.assert_close(found.sigma, sigma, rtol=0.05, atol=0)
    assert found.timestep.tolist() == sorted(found.timestep.tolist())


IMAGES = draw(3, 1, 4, 4)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"sigma": 0.0}, r"sigma\[0\] = 0: the schedule's noise is from 0.01 to 157.4"),
        ({"sigma": -1.0}, r"sigma\[0\] = -1"),
        ({"sigma": float("nan")}, r"sigma\[0\] = nan"),
        ({"sigma": torch.tensor([0.1, 0.1, 0.009])}, r"sigma\[2\] = 0.009"),
        ({"sigma": 174.0}, r"sigma\[0\] = 174"),
        ({"sigma": torch.ones(2)}, r"sigma: shape \(2,\); expected a number, or one for each of 3"),
        ({"images": torch.ones(3, 1, 8, 8)}, r"sigma\[0\] = 0"),  # no noise to be seen
        ({"images": draw(3, 2)}, r"2×2 pixels or more, found \(3, 2\); give it"),
        ({"images": IMAGES[:0]}, "images: none"),
        ({"images": IMAGES / 0, "sigma": 1.0}, "some that have no numbers"),
        ({"method": "beta"}, "method 'beta': no covariance of x_0 given x_t"),
        ({"method": "delta"}, "method 'delta': no covariance"),
        ({"method": "none"}, "method 'none': no covariance"),
        ({"method": "lanczos"}, "method 'lanczos': no covariance"),
        ({"method": "iddpm"}, "method 'iddpm': no covariance"),
        ({"method": "addim"}, "method 'addim': no covariance"),
        ({"method": "beta_tilde+dct"}, r"method 'beta_tilde\+dct': no covariance"),
    ],
)
def test_what_cannot_be_is_refused_by_name(given: dict[str, Any], said: str) -> None:
    with pytest.raises(OcmError, match=said):
        options = {"images": IMAGES, "method": "exact_diag"} | given
        denoised(gaussian(), **options)


def test_a_spectrum_is_for_images_of_its_shape() -> None:
    with pytest.raises(OcmError, match=r"\(2, 4, 8\): the spectrum of 'analytic\+dct' is for"):
        denoised(structured.denoiser(), draw(1, 2, 4, 8), "analytic+dct", 0.5)
