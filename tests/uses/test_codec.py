"""Images as bytes: the entropy of a known Gaussian, the bound, round trips, what is refused."""

from dataclasses import replace
from math import log2, pi, prod
from typing import Any

import numpy as np
import pytest
import torch

from ocm_core import covariance, networks
from ocm_core.covariance.interface import Clip
from ocm_core.covariance.learned import CovarianceHead
from ocm_core.diffusion import basis as bases
from ocm_core.diffusion import schedule as schedules
from ocm_core.diffusion import timesteps as rules
from ocm_core.diffusion.denoiser import Denoiser
from ocm_core.diffusion.gaussian import Decoder
from ocm_core.diffusion.kernels.ddpm import Ddpm
from ocm_core.errors import OcmError
from ocm_core.likelihood.bound import Likelihood
from ocm_core.rng.noise import NoiseFor, SampleNoise
from ocm_core.sampling.recipe import Recipe
from ocm_core.uses import codec as codecs
from ocm_core.uses.codec import ImageCodec, image_codec
from ocm_core.uses.lossless import mosaic, strip, unstrip
from ocm_core.uses.stack import Gaussians, Stack
from tests.core.doubles import SpectralNetwork, spectra

GREY, COLOURS, STEPS = (1, 8, 8), (3, 4, 6), 100
SCHEDULE, DECODER = schedules.linear(STEPS), Decoder(256, variance="method")
UNLIMITED = Clip(c_max=None)
TIMESTEPS = rules.even(STEPS, 10)


def gaussian(shape: tuple[int, ...], count: int) -> tuple[Denoiser, np.ndarray, np.ndarray]:
    """Return the exact model of a Gaussian, images of it, and the bits that each holds."""
    basis, source = bases.build("dct", torch.zeros(1, *shape)), torch.Generator().manual_seed(0)
    powers = torch.logspace(0, -0.5, prod(shape)).double().view(shape) / 20
    drawn = torch.randn(count, *shape, generator=source, dtype=torch.float64)
    x0 = basis.combine(powers.sqrt() * drawn)
    pixels = ((x0 + 1) * 127.5).round().clamp(0, 255).to(torch.uint8)
    squares = basis.coefficients(pixels / 127.5 - 1.0).double() ** 2
    nats = 0.5 * (squares / powers + (2 * pi * powers).log())
    bits = nats.flatten(1).sum(1) / np.log(2) + squares[0].numel() * log2(127.5)
    spectrum = spectra(SCHEDULE, *shape)["dct"]
    marginals = map(SCHEDULE.marginal, spectrum.times)
    rho = torch.stack([b * powers / (alpha_bar * powers + b) for alpha_bar, b in marginals])
    exact = {"dct": replace(spectrum, log_variance=rho.log())}
    network = SpectralNetwork(SCHEDULE, basis, powers)
    return Denoiser(network, SCHEDULE, spectra=exact), pixels.numpy(), bits.numpy()


def unet(shape: tuple[int, ...]) -> Denoiser:
    """Return a small UNet with random weights, and all that methods read."""
    torch.manual_seed(0)
    config = {"in_channels": shape[0], "base_channels": 8, "channel_multipliers": [1, 2]}
    config |= {"blocks_per_level": 1, "attention_levels": [], "norm_groups": 4}
    network = networks.build("ddpm_unet", config).eval().requires_grad_(False)
    for parameter in network.parameters():
        parameter += 0.05 * torch.randn_like(parameter)
    sizes = {"ocm": {}, "kdct": {"outputs": prod(shape)}}
    nets = {label: network.make_head("simple", **size) for label, size in sizes.items()}
    given: Any = {k: CovarianceHead(net, link="positive").eval() for k, net in nets.items()}
    given = {"heads": given, "moments": torch.linspace(1, 0.1, STEPS + 1)}
    return Denoiser(network, SCHEDULE, spectra=spectra(SCHEDULE, *shape), **given)


def smooth(shape: tuple[int, ...], count: int) -> np.ndarray:
    steps = np.random.default_rng(0).integers(-9, 10, (count, *shape))
    return (128 + steps.cumsum(2) + steps.cumsum(3)).clip(0, 255).astype(np.uint8)


def codec(model: Denoiser, method: str, shape: tuple[int, ...], **changed: Any) -> ImageCodec:
    decoder, timesteps = changed.get("decoder", DECODER), changed.get("timesteps", TIMESTEPS)
    clip = changed.get("clip", UNLIMITED)
    recipe = Recipe(timesteps, covariance.build(method), Ddpm(), clip=clip)
    return image_codec(recipe, model, decoder, shape)


def bound(code: ImageCodec, model: Denoiser, pixels: np.ndarray) -> np.ndarray:
    """Return the bound on the bits of each image, over several draws of the noise."""
    likelihood = Likelihood(model, {"m": code.method}, code.decoder, code.clip)
    x0, total = torch.from_numpy(pixels) / 127.5 - 1, np.zeros(len(pixels))
    for seed in range(8):
        found, _ = likelihood.bounds(
            {"K": code.timesteps},
            x0,
            lambda t, seed=seed: SampleNoise(
                seed, range(len(x0)), code.shape, use=NoiseFor.LIKELIHOOD, time=t
            ),
        )
        total += found["K", "m"].bits_per_dim.sum(0).numpy() * x0[0].numel() / 8
    return total


@pytest.mark.parametrize("shape", [GREY, COLOURS])
def test_gaussian_data_take_their_entropy(shape: tuple[int, ...]) -> None:
    model, pixels, entropy = gaussian(shape, 60)
    code = codec(model, "analytic+dct", shape)
    coded = code.encode(pixels)
    assert coded.bits.mean() == pytest.approx(entropy[coded.first :].mean(), rel=0.01)
    assert (code.decode(coded.words, coded.first, len(pixels)) == pixels).all()
    total = coded.bits.sum() + 8 * len(codecs.encoded(strip(pixels[: coded.first]), "webp"))
    assert 32 * len(coded.words) == pytest.approx(total, abs=160)  # nothing but that is in it


@pytest.mark.parametrize(
    ("shape", "method"),
    [
        *((GREY, method) for method in ("beta", "analytic", "rademacher", "analytic+dct", "kdct")),
        *((COLOURS, method) for method in ("beta_tilde", "ocm", "analytic+dct")),
    ],
)
def test_images_come_back_whatever_the_threads(shape: tuple[int, ...], method: str) -> None:
    pixels, code = smooth(shape, 9), codec(unet(shape), method, shape, timesteps=(1, 30, 100))
    coded = code.encode(pixels)
    assert 0 < coded.first < 6
    torch.set_num_threads(2)
    try:
        assert (code.decode(coded.words, coded.first, 9) == pixels).all()
    finally:
        torch.set_num_threads(1)
    alone = code.encode(pixels[:1])  # nothing to begin with: it is its WebP
    assert alone.first == 1 and (code.decode(alone.words, 1, 1) == pixels[:1]).all()


def excess(code: ImageCodec, model: Denoiser, pixels: np.ndarray) -> float:
    """Return the bits per dimension that images take beyond their bound; they come back exactly."""
    coded = code.encode(pixels)
    assert (code.decode(coded.words, coded.first, len(pixels)) == pixels).all()
    return float((coded.bits - bound(code, model, pixels)[coded.first :]).mean()) / pixels[0].size


@pytest.mark.parametrize("method", ["analytic+dct", "beta"])
def test_an_image_costs_its_bound(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, pixels, _ = gaussian(GREY, 80)
    code = codec(model, method, GREY)
    assert abs(excess(code, model, pixels)) < 0.03
    monkeypatch.setattr(codecs, "REACH", 25_000.0)  # nothing but the bound shows what this costs
    assert excess(replace(code), model, pixels) > 0.1


def test_bits_are_noise_though_p_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    model, pixels, _ = gaussian(GREY, 80)
    monkeypatch.setattr(Stack, "scramble", lambda *_: None)
    assert excess(codec(model, "beta", GREY), model, pixels) > 0.03


def test_the_masses_of_levels_are_those_of_the_decoder() -> None:
    for mean, variance, levels in ((-1.2, 0.02, 17), (0.3, 0.1, 17), (0.99, 0.001, 256)):
        half, x0 = (levels - 1) / 2, torch.linspace(-1, 1, levels, dtype=torch.float64)
        at, spread = torch.full((levels,), mean).double(), torch.full((levels,), variance).double()
        given = Gaussians.rounded((at + 1) * half, spread * half**2, 0, levels - 1)
        rounded = torch.from_numpy(given.mean / half - 1), torch.from_numpy(given.deviation / half)
        nats = Decoder(levels).log_likelihood(x0, rounded[0], rounded[1] ** 2)
        for symbol in np.flatnonzero(nats.numpy() > -10)[[0, -1]]:
            stack, times = Stack.upon(b"1234"), 2000
            one = Gaussians(given.mean[:1], given.deviation[:1], 0, levels - 1)
            before = stack.bits
            for _ in range(times):
                stack.push(np.array([symbol], np.int32), one)
            expected = -float(nats[symbol]) / np.log(2)
            assert (stack.bits - before) / times == pytest.approx(expected, rel=1e-3, abs=0.02)


def test_symbols_far_from_their_means_come_back() -> None:
    mean, spread = torch.linspace(-700, 700, 29).double(), torch.linspace(0.01, 9, 29).double()
    symbols = np.random.default_rng(0).integers(-500, 501, 29).astype(np.int32)
    given = Gaussians.rounded(mean, spread, -500, 500).around_means(24, 500)
    assert given.outer((symbols - given.origin).clip(-24, 24)).sum() > 20
    stack = Stack.upon(bytes(range(200)))
    before = stack.words
    stack.push(symbols, given)
    assert (stack.pop(given) == symbols).all() and (stack.words == before).all()


def test_what_cannot_be_coded_is_refused() -> None:
    model, pixels = unet(GREY), smooth(GREY, 2)
    for method, said in (("ocm+dct", "neither diagonal nor"), ("lanczos", "has no density")):
        with pytest.raises(OcmError, match=said):
            codec(model, method, GREY)
    with pytest.raises(OcmError, match="here: full"):
        codec(model, "exact_full", GREY).encode(pixels)
    with pytest.raises(OcmError, match="at most 256 levels"):
        codec(model, "beta", GREY, decoder=Decoder(None))
    for wrong in (smooth(COLOURS, 2), pixels[:0], pixels.astype(np.float32)):
        with pytest.raises(OcmError, match=r"expected some of uint8 and shape \(1, 8, 8\)"):
            codec(model, "beta", GREY).encode(wrong)
    with pytest.raises(OcmError, match="expected 0 to 16"):
        codec(model, "beta", GREY, decoder=Decoder(17)).encode(pixels)
    told = unet(GREY)
    told.network.conditional = True
    with pytest.raises(OcmError, match="takes labels or prompts"):
        codec(told, "beta", GREY)
    broken = replace(model, moments=torch.full((STEPS + 1,), torch.nan))
    with pytest.raises(OcmError, match="not finite"):
        codec(broken, "analytic", GREY).encode(smooth(GREY, 9))
    coded = codec(model, "beta", GREY).encode(smooth(GREY, 9))
    with pytest.raises(OcmError, match="is this the model that wrote it"):
        codec(model, "analytic", GREY).decode(coded.words, coded.first, 9)


def test_sheets_hold_each_image_once() -> None:
    pixels = smooth(COLOURS, 5)
    assert (unstrip(strip(pixels), COLOURS) == pixels).all()
    sheet = mosaic(pixels)
    assert sheet.shape == (2 * 4, 3 * 6, 3) and not sheet[4:, 12:].any()
    assert (sheet[4:, 6:12].transpose(2, 0, 1) == pixels[4]).all()
