"""Covariances with the correlation of a basis: closed forms, and a Gaussian of known spectrum."""

from math import log, pi
from typing import Any

import pytest
import torch

from ocm_core import covariance
from ocm_core.covariance.interface import Clip, ClipCounter, ReverseStep
from ocm_core.diffusion import basis as bases
from ocm_core.diffusion import schedule as schedules
from ocm_core.diffusion import timesteps as rules
from ocm_core.diffusion.basis import Spectrum
from ocm_core.diffusion.denoiser import Denoiser
from ocm_core.diffusion.gaussian import Correlated, Decoder, Diagonal, full
from ocm_core.diffusion.kernels.ddim import Ddim
from ocm_core.diffusion.kernels.ddpm import Ddpm
from ocm_core.diffusion.transition import transition, transitions
from ocm_core.errors import OcmError
from ocm_core.likelihood.bound import Likelihood
from ocm_core.rng.noise import NoiseFor, SampleNoise
from ocm_core.sampling.order import means_of_order
from ocm_core.sampling.recipe import Recipe
from ocm_core.schema.experiment import SpectrumParams
from ocm_core.training.batches import InMemory
from ocm_core.training.spectra import grid, spectrum_of, variances
from tests.core.doubles import SpectralNetwork, root_of

SHAPE, STEPS = (2, 4, 4), 100
SCHEDULE = schedules.linear(STEPS)
GENERATOR = torch.Generator().manual_seed(0)
POWERS = torch.logspace(0, -3, 32, dtype=torch.float64).view(SHAPE)  # of data, by coefficient
BASIS = bases.build("dct", torch.zeros(1, *SHAPE))
NETWORK = SpectralNetwork(SCHEDULE, BASIS, POWERS)  # the true score


def drawn(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=GENERATOR, dtype=torch.float64)


def exact(t: int) -> torch.Tensor:
    """Var[x_0 | x_t] by coefficient."""
    alpha_bar, b = SCHEDULE.marginal(t)
    return b * POWERS / (alpha_bar * POWERS + b)


def denoiser(powers: Any = exact) -> Denoiser:
    """The true score with a spectrum at every timestep, so that nothing is interpolated."""
    times = tuple(range(1, STEPS + 1))
    table = torch.stack([powers(t).log() for t in times])
    return Denoiser(NETWORK, SCHEDULE, spectra={"dct": Spectrum(BASIS, times, table)})


def data(count: int) -> torch.Tensor:
    return BASIS.combine(POWERS.sqrt() * drawn(count, *SHAPE))


@pytest.mark.parametrize("name", bases.BASES)
def test_a_basis_is_orthonormal_and_spreads_variances(name: str) -> None:
    basis, x = bases.build(name, drawn(200, *SHAPE)), drawn(3, *SHAPE)
    torch.testing.assert_close(basis.combine(basis.coefficients(x)), x)
    size = basis.coefficients(x)[0].shape
    vectors = basis.combine(torch.eye(32, dtype=x.dtype).view(-1, *size)).flatten(1)
    torch.testing.assert_close(vectors @ vectors.T, torch.eye(32, dtype=x.dtype))
    values = torch.rand(1, *size, generator=GENERATOR, dtype=x.dtype)
    expected = (vectors.T * values.flatten()) @ vectors
    torch.testing.assert_close(basis.spread(values).flatten(), expected.diagonal())


def test_principal_axes_decorrelate_the_data_and_come_by_variance() -> None:
    x = data(4000)
    coefficients = bases.build("klt", x).coefficients(x).flatten(1)
    covariance_of = coefficients.T.cov()
    assert (covariance_of - covariance_of.diagonal().diag()).abs().max() < 1e-10
    assert (covariance_of.diagonal().diff() <= 1e-12).all()


def test_it_is_the_full_matrix_that_it_stands_for() -> None:
    spectrum = torch.rand(1, *SHAPE, generator=GENERATOR, dtype=torch.float64) + 0.1
    magnitude, x = drawn(3, *SHAPE).abs() + 0.2, drawn(3, *SHAPE)
    found = Correlated(BASIS, spectrum, magnitude)
    vectors = BASIS.combine(torch.eye(32, dtype=x.dtype).view(-1, *SHAPE)).flatten(1).T
    scaled = magnitude.flatten(1).sqrt().unsqueeze(-1) * vectors
    matrix = full(scaled @ spectrum.flatten().diag() @ scaled.mT)
    torch.testing.assert_close(found.diagonal(x), matrix.diagonal(x))
    torch.testing.assert_close(found.divergence(0.07, x), matrix.divergence(0.07, x))
    torch.testing.assert_close(found.log_density(x), matrix.log_density(x))
    root = root_of(found, x)
    torch.testing.assert_close(root @ root.mT, matrix.matrix())
    limited = found.limited(0.5).diagonal(x)
    torch.testing.assert_close(limited, found.diagonal(x).clamp(max=0.25))


def test_equal_variances_along_the_basis_are_a_diagonal() -> None:
    """For the same noise, too: a root that is not symmetric would draw something else."""
    variance, x = drawn(3, *SHAPE).abs() + 0.2, drawn(3, *SHAPE)
    flat = torch.full((1, *SHAPE), 0.3, dtype=torch.float64)
    found, plain = Correlated(BASIS, flat).with_diagonal(variance), Diagonal(variance)
    torch.testing.assert_close(found.scale(x), plain.scale(x))
    torch.testing.assert_close(found.log_density(x), plain.log_density(x))
    torch.testing.assert_close(found.divergence(0.07, x), plain.divergence(0.07, x))


def test_the_density_is_that_of_a_normal_distribution() -> None:
    x, variance = drawn(5, *SHAPE), drawn(5, *SHAPE).abs() + 0.1
    normal = torch.distributions.Normal(0.0, variance.sqrt()).log_prob(x).flatten(1).sum(1)
    torch.testing.assert_close(Diagonal(variance).log_density(x), normal)


@pytest.mark.parametrize("limit", [None, 0.08])
@pytest.mark.parametrize("method", ["beta_tilde", "exact_diag"])
def test_the_magnitude_is_that_of_the_method(method: str, limit: float | None) -> None:
    """With its limits by pixel, and what they clamp is counted."""
    model, x = denoiser(), drawn(3, *SHAPE)
    prediction, step = model.predict(x, 60), transition(SCHEDULE, 30, 60)
    steps = [ReverseStep(step, Ddpm(), Clip(c_max=limit), ClipCounter()) for _ in range(2)]
    plain, correlated = (
        covariance.build(name).step_covariance(prediction, None)(at)
        for name, at in zip((method, f"{method}+dct"), steps, strict=True)
    )
    torch.testing.assert_close(correlated.diagonal(x), plain.diagonal(x))
    assert not torch.allclose(correlated.scale(x), plain.scale(x))
    clamped = [at.counter.read() for at in steps]
    assert clamped[0] == clamped[1]
    assert (clamped[0]["above"] > 0) == (limit is not None and method == "exact_diag")


@pytest.mark.parametrize("kernel", [Ddpm(), Ddim()])
def test_a_flat_spectrum_changes_no_byte(kernel: Any) -> None:
    flat = denoiser(lambda t: torch.full(SHAPE, 0.1 + t, dtype=torch.float64))
    recipes = (
        Recipe(rules.even(STEPS, 5), covariance.build(name), kernel)
        for name in ("exact_diag", "exact_diag+dct")
    )
    one, other = (r.draw(flat, SampleNoise(1, range(2), SHAPE)).x for r in recipes)
    assert torch.equal(one, other)


def test_samples_of_a_gaussian_have_its_covariance_in_one_step() -> None:
    """From x_T a jump to t = 1 has the exact covariance by coefficient; then the mean is shown."""
    model, count = denoiser(), 4000
    recipe = Recipe((1, STEPS), covariance.build("analytic+dct"), Ddpm(), clip=Clip())
    x = recipe.draw(model, SampleNoise(0, range(count), SHAPE)).x
    found = BASIS.coefficients(x.double()).square().mean(0)
    alpha_bar, b = SCHEDULE.marginal(1)
    shown = alpha_bar * POWERS**2 / (alpha_bar * POWERS + b)
    assert ((found / shown).log().abs() < 5 * (2 / count) ** 0.5 + 0.01).all()


@pytest.mark.parametrize("nfe", [2, 10, 100])
def test_the_bound_of_a_gaussian_is_its_entropy_at_any_number_of_steps(nfe: int) -> None:
    """And the diagonal's is not, at few: what lies in correlation is lost to it."""
    methods = {name: covariance.build(name) for name in ("analytic+dct", "exact_diag")}
    count = min(2000, 40_000 // nfe)
    likelihood = Likelihood(denoiser(), methods, Decoder(None, variance="method"), Clip())
    x0, use = data(count), NoiseFor.LIKELIHOOD

    def noise_at(t: int) -> SampleNoise:
        return SampleNoise(0, range(count), SHAPE, use=use, time=t, draws=1)

    bounds, _ = likelihood.bounds({"even": rules.even(STEPS, nfe)}, x0, noise_at)
    log_density = -0.5 * (BASIS.coefficients(x0) ** 2 / POWERS + (2 * pi * POWERS).log())
    nats = log_density.flatten(1).sum(1)
    gaps = {m: bounds["even", m].bits_per_dim.sum(0) + nats / (32 * log(2)) for m in methods}
    error = float(gaps["analytic+dct"].std()) / count**0.5
    assert abs(gaps["analytic+dct"].mean()) < 0.012 + 3 * error  # the decoder's pixels, the prior
    assert gaps["exact_diag"].mean() > {2: 1.0, 10: 0.5, 100: 0.05}[nfe]


def test_the_spectrum_of_residuals_is_the_posterior_variance() -> None:
    settings = SpectrumParams(images=3000, batch_size=1000, points=12)
    items, model = InMemory(data(4000)), denoiser()
    times = grid(SCHEDULE, settings)
    values = [variances(model, items, BASIS, t, settings) for t in times]
    for t, found in zip(times, values, strict=True):
        assert ((found / exact(t)).log().abs() < 5 * (2 / 3000) ** 0.5).all()
    times = grid(SCHEDULE, SpectrumParams())
    between = spectrum_of(BASIS, times, map(exact, times))
    off = [(between.at(t)[0] / exact(t)).log().abs().max() for t in range(1, STEPS + 1)]
    assert max(off) < 0.05
    again = Spectrum.of_tensors(between.tensors())
    assert torch.equal(again.at(37), between.at(37)) and again.times == between.times


def test_between_timesteps_a_spectrum_is_straight_in_its_logarithm() -> None:
    ends = torch.tensor([1.0, 16.0]).double().view(2, 1, 1, 1).expand(2, *SHAPE)
    spectrum = Spectrum(BASIS, (10, 18), ends.log())
    for t, value in {1: 1.0, 10: 1.0, 12: 2.0, 14: 4.0, 18: 16.0, 30: 16.0}.items():
        torch.testing.assert_close(spectrum.at(t), torch.full((1, *SHAPE), value).double())


def test_the_spectrum_is_that_of_the_limited_residual() -> None:
    """x̂_0 = 0 leaves the data; what never varies has a floor."""
    settings = SpectrumParams(images=3000, batch_size=1000)
    still = BASIS.combine(BASIS.coefficients(data(4000)) * (POWERS > 2e-3))
    given: Any = (denoiser(), InMemory(still), BASIS, 2, settings)
    found = variances(*given, Clip(x0=1e-9))
    expected = POWERS.where(POWERS > 2e-3, 1e-6 * found.mean())
    assert ((found / expected).log().abs() < 5 * (2 / 3000) ** 0.5).all()
    assert (variances(*given)[POWERS > 2e-3] < 0.1 * found[POWERS > 2e-3]).any()


def test_what_has_no_diagonal_or_no_basis_is_refused() -> None:
    model, x = denoiser(), drawn(2, *SHAPE)
    for name in ("exact_full", "kdct", "lanczos", "addim"):
        with pytest.raises(OcmError, match=rf"'{name}\+dct': '{name}' is no diagonal; .* ocm,"):
            covariance.build(f"{name}+dct")
    with pytest.raises(OcmError, match="basis 'dtc' is unknown; did you mean 'dct'"):
        covariance.build("ocm+dtc")
    with pytest.raises(OcmError, match="no spectrum in the basis 'klt'"):
        covariance.build("analytic+klt").step_covariance(model.predict(x, 60), None)
    with pytest.raises(OcmError, match="3072 dimensions, at most 2048; use 'dct'"):
        bases.build("klt", torch.zeros(2, 3, 32, 32))


def variances_after_two_steps(order: Any, method: str) -> torch.Tensor:
    """Return Var[x_s] by coefficient, in units of that of q(x_s)."""
    seen: dict[float, torch.Tensor] = {}
    recipe = Recipe((2, 8, 40, 100), covariance.build(method), Ddpm(), order=order, clip=Clip())
    noise = SampleNoise(0, range(4000), SHAPE)
    recipe.draw(denoiser(), noise, watch=seen.__setitem__)
    alpha_bar, b = SCHEDULE.marginal(8)
    return BASIS.coefficients(seen[8].double()).var(0) / (alpha_bar * POWERS + b)


def test_matched_steps_keep_the_variance_of_every_coefficient() -> None:
    """As the first order does, and the second does not: it adds what C adds already."""
    first, second, matched = (
        variances_after_two_steps(order, "analytic+dct") for order in (1, 2, "matched")
    )
    assert (first - 1).abs().max() < 0.1  # of 4000 samples, the same noise for all
    assert (matched - first).abs().max() < 0.01
    assert (second - first).max() > 0.08


def test_matched_steps_extrapolate() -> None:
    """With the magnitude of a method, too; where all steps are of first order nothing changes."""
    for method in ("analytic+dct", "exact_diag+dct"):
        draws = [
            Recipe(timesteps, covariance.build(method), Ddpm(), order=order).draw(
                denoiser(), SampleNoise(0, range(3), SHAPE)
            )
            for timesteps in ((10, 40, 70), (70,))
            for order in (1, "matched")
        ]
        assert not torch.allclose(draws[0].x, draws[1].x)
        torch.testing.assert_close(draws[2].x, draws[3].x)


def test_the_last_step_has_all_of_its_covariance() -> None:
    """Where it draws at all: it extrapolates nothing, whatever the step before has left of C."""
    means = means_of_order("matched", Ddpm(), covariance.build("analytic+dct"))
    *before, last = transitions(SCHEDULE, (10, 40, 70))
    for step in before:
        means(ReverseStep(step, Ddpm()), denoiser().predict(drawn(2, *SHAPE), step.t))
    assert torch.as_tensor(means.left).min() < 1.0
    means(ReverseStep(last, Ddpm()), denoiser().predict(drawn(2, *SHAPE), last.t))
    assert means.left == 1.0


def test_matched_steps_need_ddpm_and_a_basis() -> None:
    with pytest.raises(OcmError, match="matched is for ddpm; for ddim use 1, 2 or 3"):
        Recipe((1, 5), covariance.build("analytic+dct"), Ddim(), order="matched")
    with pytest.raises(OcmError, match=r"matched needs a spectrum: use analytic\+dct"):
        Recipe((1, 5), covariance.build("analytic"), Ddpm(), order="matched")
