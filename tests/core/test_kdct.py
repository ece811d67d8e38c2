"""The learned diagonal in a basis: its targets, and a Gaussian whose spectrum it has to find."""

from dataclasses import replace
from itertools import product
from typing import Any

import pytest
import torch
from torch import nn

from ocm_core import covariance
from ocm_core.covariance.interface import Clip
from ocm_core.covariance.learned import CovarianceHead, TrainingBatch
from ocm_core.diffusion import schedule as schedules
from ocm_core.diffusion import timesteps as rules
from ocm_core.diffusion.basis import Spectrum
from ocm_core.diffusion.denoiser import Denoiser
from ocm_core.diffusion.gaussian import Correlated, Decoder
from ocm_core.diffusion.score_network import TrunkFeatures
from ocm_core.errors import OcmError
from ocm_core.likelihood.bound import Likelihood
from ocm_core.networks._layers import PooledHead
from ocm_core.networks._unet import OutputLayer
from ocm_core.params.compose import compose
from ocm_core.rng.noise import NoiseFor, SampleNoise
from ocm_core.schema.experiment import SolveParams
from ocm_core.training.baselines import target_means
from ocm_core.training.batches import InMemory
from ocm_core.training.head_fitting import HeadFitting
from ocm_core.training.solving import HeadSolving
from tests.core.doubles import WaveNetwork, ddpm, spectra
from tests.core.test_methods import a_model
from tests.core.test_structured import BASIS, NETWORK, SCHEDULE, SHAPE, STEPS, data, exact

WRONG = torch.linspace(0.5, 2.0, 32, dtype=torch.float64).view(SHAPE)  # of ρ, by coefficient
SOURCES = ("jacobian", "residual")


def head() -> PooledHead:
    """A head with an output for each coefficient, on images of two channels."""
    layer = OutputLayer(nn.GroupNorm(1, 2), nn.Conv2d(2, 2, 3, padding=1))
    return PooledHead(layer, 32).double()


def model(factor: Any = WRONG, dtype: Any = torch.float64, **form: Any) -> Denoiser:
    """The true score of a Gaussian, an untrained head, and a spectrum that is off by a factor."""
    times = tuple(range(1, STEPS + 1))
    spectrum = Spectrum(BASIS, times, torch.stack([(exact(t) * factor).log() for t in times]))
    heads = {"kdct": CovarianceHead(head().to(dtype), **form)}
    return Denoiser(NETWORK, SCHEDULE, heads=heads, spectra={"dct": spectrum})


def c(t: int) -> torch.Tensor:
    alpha_bar, b = SCHEDULE.marginal(t)
    return exact(t) * alpha_bar / b


def test_the_target_has_the_diagonal_in_the_basis_as_its_mean() -> None:
    """Over all probes, for a Jacobian that is not diagonal there."""
    levels, shape = schedules.linear(1000), (1, 2, 2)
    denoiser = Denoiser(WaveNetwork(), levels, spectra=spectra(levels, *shape))
    x = torch.randn(3, *shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    seen = denoiser.predict(x.requires_grad_(), 400)
    signs = (torch.tensor(v, dtype=x.dtype) for v in product([-1.0, 1.0], repeat=4))
    probes = tuple(v.view(1, *shape).expand_as(x) for v in signs)
    batch = TrainingBatch(seen, x, x, Decoder(None), probes)
    method: Any = covariance.build("kdct", probes=16)
    basis = denoiser.spectra["dct"].basis
    vectors = basis.combine(torch.eye(4, dtype=x.dtype).view(4, *shape)).flatten(1)
    within = (vectors @ seen.jacobian() @ vectors.T).diagonal(dim1=1, dim2=2).view_as(x)
    b = levels.marginal(400)[1]
    torch.testing.assert_close(method.target(batch), 1 - b**0.5 * within)
    alone: Any = covariance.build("ocm", probes=16)
    assert not torch.allclose(alone.target(batch), method.target(batch), atol=1e-3)


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("t", [5, 60])
def test_both_targets_have_the_exact_diagonal_as_their_mean(source: str, t: int) -> None:
    generator, count = torch.Generator().manual_seed(t), 4000
    x0, denoiser = data(count), model()
    eps = torch.randn(x0.shape, generator=generator, dtype=x0.dtype)
    alpha_bar, b = SCHEDULE.marginal(t)
    x = (alpha_bar**0.5 * x0 + b**0.5 * eps).requires_grad_()
    probes = (torch.randn(x0.shape, generator=generator, dtype=x0.dtype).sign(),)
    batch = TrainingBatch(denoiser.predict(x, t), x0, eps, Decoder(None), probes)
    method: Any = covariance.build("kdct", source=source)
    found = method.target(batch).detach().mean(0)
    noise = {"jacobian": 1e-9, "residual": 5 * (2 / count) ** 0.5}[source]
    assert ((found / c(t)).log().abs() < noise).all()


@pytest.mark.parametrize("source", SOURCES)
def test_a_solved_head_finds_the_spectrum(source: str) -> None:
    """Whatever spectrum it is relative to; its bound is then that of the exact covariance."""
    method: Any = covariance.build("kdct", source=source)
    fitting = HeadFitting(model(), {"kdct": method}, InMemory(data(4000)), Decoder(None))
    system, sums = HeadSolving(fitting, SolveParams(draws=4000, batch_size=100)), {}
    for number in system.batches:
        system.add(sums, number)
    system.finish(sums, target_means(fitting, 0))
    denoiser, error = fitting.denoiser, {"jacobian": 0.01, "residual": 0.3}[source]
    for t in (2, 30, 90):
        found = method.c(denoiser.predict(data(50), t)).detach()
        assert ((found / c(t)).log().abs() < error).all()
    truth = replace(denoiser, spectra=model(factor=1.0).spectra)
    stationary, x0 = covariance.build("analytic+dct"), data(40)

    def noise_at(t: int) -> SampleNoise:
        return SampleNoise(2, range(40), SHAPE, "cpu", NoiseFor.LIKELIHOOD, t)

    def bits(able: Denoiser, rule: Any) -> torch.Tensor:
        likelihood = Likelihood(able, {"m": rule}, Decoder(None))
        bounds, _ = likelihood.bounds({"even": rules.even(STEPS, 10)}, x0, noise_at)
        return bounds["even", "m"].bits_per_dim.sum(0).mean()

    apart = {"jacobian": 1e-3, "residual": 0.02}[source]
    assert abs(bits(denoiser, method) - bits(truth, stationary)) < apart
    assert bits(denoiser, stationary) > bits(truth, stationary) + 0.05


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("link", ["identity", "positive"])
def test_an_untrained_head_is_the_stationary_covariance(order: Any, link: str) -> None:
    denoiser = model(dtype=torch.float32, link=link)
    drawn = [
        ddpm(
            denoiser,
            covariance.build(name),
            rules.even(STEPS, 5),
            SampleNoise(1, range(2), SHAPE),
            order=order,
        ).x
        for name in ("kdct", "analytic+dct")
    ]
    torch.testing.assert_close(*drawn, rtol=1e-5, atol=1e-5)


def test_what_is_clamped_is_counted_and_coefficients_have_no_upper_limit() -> None:
    denoiser, noise = model(1e4, torch.float32), SampleNoise(1, range(3), SHAPE)
    method, even = covariance.build("kdct"), rules.even(STEPS, 5)
    given: Any = {"clip": Clip(c_max=1.0)}
    assert ddpm(denoiser, method, even, noise, **given).clipped == {
        "entries": 4 * 3 * 32,
        "below": 0,
    }
    nn.init.constant_(denoiser.heads["kdct"].net.pooled.bias, -2.0)
    drawn = ddpm(denoiser, method, even, noise, **given)
    assert drawn.clipped["below"] == drawn.clipped["entries"] and torch.isfinite(drawn.x).all()


def test_the_floor_of_a_solved_head_is_shared_out_as_the_spectrum_is() -> None:
    table = torch.linspace(0, 0.1, STEPS + 1, dtype=torch.float64)
    denoiser, method = model(floor=table), covariance.build("kdct")
    nn.init.constant_(denoiser.heads["kdct"].net.pooled.bias, -2.0)
    found = method.c(denoiser.predict(data(2), 50)).detach()
    expected = 0.05 * c(50) * WRONG / (c(50) * WRONG).mean()
    torch.testing.assert_close(found, expected.expand_as(found))


def test_maps_of_pixels_are_the_diagonal_of_the_covariance() -> None:
    denoiser, method = model(), covariance.build("kdct")
    seen = denoiser.predict(data(2), 50)
    expected = Correlated(BASIS, method.c(seen)).diagonal(seen.x.float())
    torch.testing.assert_close(method.by_entry(seen).float(), expected)


def test_what_it_cannot_do_is_refused() -> None:
    more = ["+methods.kdct={}", "sample.samplers.ddpm.methods=[beta,kdct]"]
    compose("imagenet256", [*more, "sample.guidance.channels=all"])
    with pytest.raises(OcmError, match="'kdct' is by coefficient, and guidance by channel"):
        compose("imagenet256", more)
    with pytest.raises(OcmError, match="head kind 'mlp' has 2 outputs, not 5"):
        a_model().network.make_head("mlp", width=8, depth=1, outputs=5)


def test_features_are_pooled_over_positions_in_any_layout() -> None:
    features = torch.randn(3, 2, 4, 4, dtype=torch.float64)
    found = head()
    nn.init.normal_(found.pooled.weight)
    turned = features.flatten(2).flip(2).view_as(features)
    outputs = (found(TrunkFeatures(x, torch.zeros(3))) for x in (features, turned))
    torch.testing.assert_close(*outputs)
