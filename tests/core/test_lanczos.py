"""The Lanczos sampler: with all products exact, with few ones the root on a Krylov space."""

import re
from collections.abc import Sequence

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from ocm_core import covariance
from ocm_core.covariance.interface import Clip, ReverseStep
from ocm_core.covariance.lanczos import Krylov
from ocm_core.diffusion import schedule
from ocm_core.diffusion.denoiser import Denoiser
from ocm_core.diffusion.gaussian import Covariance, Decoder, full
from ocm_core.diffusion.guidance import Guidance
from ocm_core.diffusion.transition import transition
from ocm_core.errors import OcmError
from ocm_core.likelihood.bound import Likelihood
from ocm_core.params.compose import compose
from ocm_core.schema.experiment import MethodParams
from ocm_core.stages import covariance_error
from tests.core.doubles import PAIR, Ddim, Ddpm, LabelledNetwork, QuadraticNetwork, Replay, exact

LEVELS = schedule.linear(50)
STEP = transition(LEVELS, 5, 30)
KERNELS = st.sampled_from([Ddpm(), Ddim(), Ddim(eta=0.5)])


def symmetric(values: Sequence[float], seed: int = 0) -> Tensor:
    """A random symmetric matrix with these eigenvalues."""
    draw = torch.Generator().manual_seed(seed)
    square = torch.randn(len(values), len(values), generator=draw, dtype=torch.float64)
    vectors = torch.linalg.qr(square).Q
    return vectors @ torch.diag(torch.tensor(values, dtype=torch.float64)) @ vectors.T


def krylov(matrix: Tensor, products: int) -> Krylov:
    return Krylov(lambda v: v @ matrix, products, lambda values: values.clamp(min=0))


def root(matrix: Tensor) -> Tensor:
    found = full(matrix[None])
    return (found.vectors * found.values.sqrt().unsqueeze(1) @ found.vectors.mT)[0]


@given(st.integers(2, 9), st.integers(0, 20))
def test_all_products_give_the_root(size: int, seed: int) -> None:
    matrix = symmetric([0.05 + i for i in range(size)], seed)
    z = torch.randn(4, size, dtype=torch.float64)
    torch.testing.assert_close(krylov(matrix, size).scale(z), z @ root(matrix))


@given(st.integers(1, 12), st.integers(1, 3), st.integers(0, 20))
def test_as_many_products_as_eigenvalues_give_the_root(size: int, kinds: int, seed: int) -> None:
    """Beyond that nothing is left of c z to begin another vector with, and nothing breaks."""
    matrix = symmetric([0.1 + i % kinds for i in range(size)], seed)
    z = torch.randn(4, size, dtype=torch.float64)
    for products in range(min(kinds, size), size + 1):
        torch.testing.assert_close(krylov(matrix, products).scale(z), z @ root(matrix))


@given(st.integers(1, 6), st.integers(0, 20))
def test_any_number_of_products_gives_the_length(products: int, seed: int) -> None:
    matrix = symmetric([0.01 * 2.0**i for i in range(12)], seed)
    z = torch.randn(4, 12, dtype=torch.float64)
    found = krylov(matrix, products).scale(z)
    torch.testing.assert_close((found**2).sum(1), (z @ matrix * z).sum(1))


@pytest.mark.parametrize("products", [3, 6])
def test_the_covariance_of_many_draws(products: int) -> None:
    """A floor of 0.2 beside eigenvalues down from 1, as a step has: three products are enough."""
    values = [0.2 + 0.8 * 0.6**i for i in range(16)]
    matrix, count = symmetric(values), 50_000
    generator = torch.Generator().manual_seed(1)
    z = torch.randn(count, 16, generator=generator, dtype=torch.float64)
    drawn = krylov(matrix, products).scale(z)
    found, error = drawn.T @ drawn / count, max(values) / count**0.5
    assert (found - matrix).abs().max() < {3: 0.03, 6: 5 * error}[products]
    assert float(torch.trace(found)) == pytest.approx(sum(values), rel=0.01)


@given(KERNELS, st.integers(0, 20))
def test_with_all_products_it_is_exact_full(kernel: Ddpm | Ddim, seed: int) -> None:
    """Of a network too, whose Jacobian is not symmetric, and whose eigenvalues are clamped."""
    model = Denoiser(QuadraticNetwork(5, seed), LEVELS)
    z, x = torch.randn(2, 4, 5, dtype=torch.float64)
    step = ReverseStep(STEP, kernel, Clip())

    def of(name: str, **options: int) -> Covariance:
        method = covariance.build(name, **options)
        return method.step_covariance(model.predict(x, 30), Replay([]))(step)

    lanczos, whole = of("lanczos", products=9), of("exact_full")
    for change in (lambda s: s, lambda s: s.limited(0.1)):
        found, expected = change(lanczos).scale(z), change(whole).scale(z)
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("kind", ["guided", "conditional"])
def test_guidance_mixes_the_products(kind: str) -> None:
    model = Denoiser(LabelledNetwork(0), LEVELS)
    guided = Guidance(2.5, covariance=kind).apply(model)
    z, x = torch.randn(2, 3, 4, 2, 2, dtype=torch.float64)
    seen, step = guided.predict(x, 30, torch.tensor([0, 1, 2])), ReverseStep(STEP, Ddpm(), Clip())
    found, expected = (
        covariance.build(name, **options).step_covariance(seen, Replay([]))(step).scale(z)
        for name, options in (("lanczos", {"products": 16}), ("exact_full", {}))
    )
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-7)


def test_the_limit_of_a_pixel_is_not_one_of_an_eigenvalue() -> None:
    """ε̂ = 0 at every pixel: C = b / ᾱ I, which is 5 here, and would be 1 with the limit."""
    model = Denoiser(QuadraticNetwork(5, 0), LEVELS)
    model.network.weights.data.zero_()
    z, x = torch.randn(2, 4, 5, dtype=torch.float64)
    found = covariance.build("lanczos").step_covariance(model.predict(x, 30), Replay([]))
    step = ReverseStep(STEP, Ddpm(), Clip(c_max=1.0))
    variance = step.kernel.floor(STEP) + step.kernel.gain(STEP) * STEP.b_t / STEP.alpha_bar_t
    torch.testing.assert_close(found(step).scale(z), variance**0.5 * z)


def test_it_has_no_bound() -> None:
    method = covariance.build("lanczos")
    with pytest.raises(OcmError, match="'lanczos' has no density, and so no bound"):
        Likelihood(exact(PAIR, LEVELS), {"lanczos": method}, Decoder(None))


@pytest.mark.parametrize("block", ["train.timesteps", "evaluate.likelihood"])
def test_a_bound_is_refused_when_an_experiment_is_composed(block: str) -> None:
    expected = f"{block}.methods: 'lanczos' has no density, and so no bound; leave it out"
    methods = f"{block}.methods=[exact_diag, ocm_relative, lanczos]"
    with pytest.raises(OcmError, match=re.escape(expected)):
        compose(
            "toy_mog9", ["+methods.lanczos={}", methods, "evaluate.likelihood.nfe_by_method={}"]
        )


def test_its_covariance_is_not_measured_and_its_products_are_charged() -> None:
    asked = "sample.samplers.ddpm.methods=[beta, lanczos]"
    experiment = compose("toy_mog9", ["+methods.lanczos={products: 2}", asked])
    assert covariance_error.ddpm_methods(experiment, "all") == ["beta"]
    assert experiment.methods["lanczos"].products == 2
    assert covariance.build("lanczos").extra_work(784) == "3 backward passes"
    assert MethodParams(kind="delta", needs="nothing").products == 0
