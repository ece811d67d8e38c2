"""Images as bytes: bits-back coding along the timesteps, in the order of Bit-Swap.

A stack of bits takes an image step by step, upwards from s = 0: x_t is popped with q(x_t | x_s),
and x_s pushed with p(x_s | x_t); last, x_{τ_K} is pushed with N(0, I). By Bayes' rule the product
of q(x_t | x_s) is q(x_{τ_K} | x_0) times that of q(x_s | x_t, x_0), so that an image costs its
variational bound, term by term (`likelihood/bound.py`). Decoding goes the same way backwards.

- Latents stand on grids of bins: by pixel or, where Σ = U diag(λ) Uᵀ, as coefficients Uᵀ x_t. The
  width of the bins cancels between q and p.
- A quantised Gaussian has a mass of 2⁻²⁴ at least in each of its bins. Over thousands of bins the
  tails of q would be popped now and then, and cost p dearly: q ends at 8 σ. Those of p would take
  their share of every symbol: p goes on evenly beyond 8 σ.
- What p has pushed is popped by the next q, as its noise; where p is not the distribution of x_s,
  these bits are not even, and x_t not from q: a fixed pattern is laid over them in between.
- The first image pops bits that nobody has pushed: images before it stand there as WebP.
- Both sides must find the same whole numbers: networks run in float64, one image at a time, on a
  CPU; means and deviations are rounded to a grid far coarser than what threads change (`stack.py`).
"""

from __future__ import annotations

import platform
from collections.abc import Iterable
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cached_property, partial
from math import ceil, floor, log2, prod, sqrt
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float64, UInt8
from numpy import ndarray
from torch import Tensor

from ocm_core.covariance.interface import Clip, CovarianceMethod, ReverseStep, predict
from ocm_core.covariance.structured import Structured
from ocm_core.diffusion.basis import Basis
from ocm_core.diffusion.denoiser import Denoiser, forward
from ocm_core.diffusion.gaussian import Correlated, Covariance, Decoder, Diagonal
from ocm_core.diffusion.kernels.ddpm import Ddpm
from ocm_core.diffusion.timesteps import Timesteps
from ocm_core.diffusion.transition import Transition, transitions
from ocm_core.errors import OcmError
from ocm_core.io.reading import reading
from ocm_core.likelihood.bound import Likelihood, decoder_variance
from ocm_core.progress import Progress
from ocm_core.rng.noise import NoiseFor, SampleNoise
from ocm_core.rng.streams import Stream, stream
from ocm_core.sampling.recipe import AnyRecipe, Recipe
from ocm_core.shapes import Batch
from ocm_core.uses.lossless import ImagePixels, encoded, read_webp, strip, unstrip
from ocm_core.uses.stack import ExhaustedError, Gaussians, Stack, Symbols, Words

Image = UInt8[ndarray, "channel height width"]
REACH = 8.0  # standard deviations of q
FINENESS = 8.0  # bins in a standard deviation, at least
UNCODED = (
    "its Σ is neither diagonal nor U diag(λ) Uᵀ, and there is no grid of bins on which q and p are"
    " independent; use a method without basis, or analytic+dct"
)
_DDPM = Ddpm()


@dataclass(frozen=True)
class LatentBins:
    """A step t → s, the bins of x_t, and the level of x_s, which is None where that is x_0."""

    step: Transition
    lower: LatentBins | None
    width: float  # of a bin
    reach: int  # bins that q has on either side of its mean
    most: int  # the last bin that x_t can be in


class Coded(NamedTuple):
    """A stack with images: the first ones at its bottom as WebP, and the bits of each other one."""

    words: Words
    first: int
    bits: Float64[ndarray, " image"]


@dataclass(frozen=True)
class ImageCodec:
    """A model in float64 with all that a code for images of `shape` depends on."""

    model: Denoiser
    method: CovarianceMethod
    timesteps: Timesteps
    decoder: Decoder
    clip: Clip
    shape: tuple[int, ...]

    def encode(self, images: ImagePixels, progress: Progress[int] = iter) -> Coded:
        """Return the images as bits, after as few at the bottom as the others take to begin."""
        if len(images) == 0 or images.shape[1:] != self.shape or images.dtype != np.uint8:
            found = f"{len(images)} images of {images.dtype}, shape {images.shape[1:]}"
            raise OcmError(f"codec: {found}; expected some of uint8 and shape {self.shape}")
        if (largest := images.max()) > self.last_level:
            raise OcmError(f"codec: a level of {largest}; expected 0 to {self.last_level}")
        for first in range(1, len(images) + 1):
            stack, bits = Stack.upon(encoded(strip(images[:first]), "webp")), list[int]()
            try:
                for row in progress(range(first, len(images))):
                    before = stack.bits
                    self.push(stack, images[row])
                    bits.append(stack.bits - before)
            except ExhaustedError:
                continue
            break
        return Coded(stack.words, first, np.array(bits, np.float64))

    def decode(
        self, words: Words, first: int, count: int, progress: Progress[int] = iter
    ) -> ImagePixels:
        """Return the images, of which there are `count`."""
        with reading("codec", "a stack of images", "is this the model that wrote it?"):
            stack = Stack(words)
            found = [self.pop(stack) for _ in progress(range(count - first))]
            images = unstrip(read_webp(stack.bottom), self.shape)
        return np.concatenate([images, *(image[None] for image in reversed(found))])

    def push(self, stack: Stack, pixels: Image) -> None:
        """Add one image to the stack."""
        below, place = pixels.reshape(-1).astype(np.int32), self._data(pixels)
        for level in self._levels:
            stack.scramble(self._pattern)
            symbols = stack.pop(self._forward(level, place))
            place = _place(level, symbols)
            stack.push(below, self._reverse(level, place))
            below = symbols
        stack.push(below, self._prior)

    def pop(self, stack: Stack) -> Image:
        """Take one image from the stack."""
        symbols = stack.pop(self._prior)
        for level in reversed(self._levels):
            below = stack.pop(self._reverse(level, _place(level, symbols)))
            place = self._data(below) if level.lower is None else _place(level.lower, below)
            stack.push(symbols, self._forward(level, place))
            stack.scramble(self._pattern)
            symbols = below
        return symbols.reshape(self.shape).astype(np.uint8)

    def _forward(self, level: LatentBins, place: Tensor) -> Gaussians:
        """q(x_t | x_s) = N(√ᾱ_{s:t} x_s, b_{s:t} I), within its reach."""
        mean = sqrt(level.step.alpha_bar_st) * place / level.width
        variance = torch.full_like(mean, level.step.b_st / level.width**2)
        return Gaussians.rounded(mean, variance, -level.most, level.most).around_means(level.reach)

    @torch.no_grad()
    def _reverse(self, level: LatentBins, place: Tensor) -> Gaussians:
        """p(x_s | x_t), or p(x_0 | x_t) over the levels of the data."""
        t, step = level.step.t, ReverseStep(level.step, _DDPM, self.clip)
        x = place if self._basis is None else self._basis.combine(place)
        prediction = predict(self.model, [self.method], x.view(1, *self.shape), t, None)
        noise = SampleNoise(0, [0], self.shape, use=NoiseFor.LIKELIHOOD, time=t)
        covariance, mean = self.method.step_covariance(prediction, noise), step.mean(prediction)
        if (lower := level.lower) is None:
            variance, half = decoder_variance(step, covariance, mean, self.decoder), self._half
            return Gaussians.rounded((mean + 1) * half, variance * half**2, 0, self.last_level)
        mean, variance = self._coordinates(mean) / lower.width, self._variances(covariance(step))
        given = Gaussians.rounded(mean, variance / lower.width**2, -lower.most, lower.most)
        return given.around_means(ceil(REACH * given.deviation.max()), lower.most)

    @cached_property
    def _prior(self) -> Gaussians:
        """N(0, I) at the last timestep."""
        level, ones = self._levels[-1], torch.ones(prod(self.shape), dtype=torch.float64)
        return Gaussians.rounded(0 * ones, ones / level.width**2, -level.most, level.most)

    @cached_property
    def _pattern(self) -> Symbols:
        """Eight bits for each coordinate: q takes some six."""
        words = stream(Stream.STACK, 0).bit_generator.random_raw(ceil(prod(self.shape) / 2))
        return (words >> 48).astype(np.int32)

    @cached_property
    def _levels(self) -> list[LatentBins]:
        """The steps upwards, with bins that are narrow for q(x_t | x_s) and for p(x_t | x_u)."""
        levels, steps = list[LatentBins](), transitions(self.model.schedule, self.timesteps)[::-1]
        least = [*(step.beta_tilde for step in steps[1:]), 1.0]
        lower, most = None, 1.0 if self._basis is None else self._basis.largest_sum
        for step, variance in zip(steps, least, strict=True):
            width = 2.0 ** floor(log2(sqrt(min(step.b_st, variance)) / FINENESS))
            reach = ceil(REACH * sqrt(step.b_st) / width)
            most = sqrt(step.alpha_bar_st) * most + (reach + 1) * width
            lower = LatentBins(step, lower, width, reach, ceil(most / width))
            levels.append(lower)
        return levels

    @cached_property
    def _basis(self) -> Basis | None:
        """The basis in which latents are coded; None: in pixels."""
        name = self.method.spectrum
        return self.model.spectrum(name).basis if name else None

    @property
    def last_level(self) -> int:
        """Return the largest value of a pixel; the least is 0."""
        return (self.decoder.levels or 256) - 1

    @property
    def _half(self) -> float:
        """Levels in a unit of the data, which lie in [-1, 1]."""
        return self.last_level / 2

    def _data(self, symbols: ndarray) -> Tensor:
        """Return the coordinates of x_0."""
        levels = torch.from_numpy(symbols.reshape(1, *self.shape)).double()
        return self._coordinates(levels / self._half - 1)

    def _coordinates(self, x: Batch) -> Tensor:
        """Return an image as latents stand: by pixel, or by coefficient."""
        coordinates = x.double() if self._basis is None else self._basis.coefficients(x.double())
        return coordinates.flatten()

    def _variances(self, covariance: Covariance) -> Tensor:
        """Return the variance of each coordinate."""
        match covariance:
            case Diagonal(variance) if self._basis is None:
                return variance.double().expand(1, *self.shape).flatten()
            case Correlated(_, spectrum, None):
                return spectrum.double().flatten()
        kind = type(covariance).__name__.lower()
        raise OcmError(f"method '{self.method.label}': {UNCODED} (here: {kind})")


def _place(level: LatentBins, symbols: Symbols) -> Tensor:
    """Return the coordinates of the middle of bins."""
    return torch.from_numpy(symbols).double() * level.width


def image_codec(
    recipe: AnyRecipe, denoiser: Denoiser, decoder: Decoder, shape: tuple[int, ...]
) -> ImageCodec:
    """Return a code for images with the method and timesteps of a recipe, and a decoder at the end.

    It holds a copy of the denoiser in float64 on the CPU.
    """
    match recipe:
        case Recipe(timesteps, method, Ddpm(), order=1, posterior_factor=1.0, clip=clip):
            problem = uncodable(method) or _unfit(denoiser, decoder, shape)
        case _:
            problem = "files take steps of DDPM of order 1; name such a sampler or preset"
    if problem:
        raise OcmError(f"codec: {problem}")
    copied = {name: deepcopy(head).cpu().double() for name, head in denoiser.heads.items()}
    model = replace(
        denoiser,
        network=deepcopy(denoiser.network).cpu().double(),
        heads=copied,
        spectra={name: spectrum.to("cpu") for name, spectrum in denoiser.spectra.items()},
        moments=None if denoiser.moments is None else denoiser.moments.cpu().double(),
        precision=torch.float32,  # no autocast
        forward=forward,
    )
    return ImageCodec(model, method, timesteps, replace(decoder, cdf="exact"), clip, shape)


def bits_of_bound(
    denoiser: Denoiser, code: ImageCodec, images: ImagePixels, seeds: Iterable[int], device: str
) -> Float64[ndarray, " image"]:
    """Return the bound on each image's bits per dimension, averaged over seeds of the noise."""
    likelihood = Likelihood(denoiser, {"": code.method}, code.decoder, code.clip)
    x0 = torch.from_numpy(images).to(device) * 2 / code.last_level - 1
    whose = range(len(x0)), code.shape, device, NoiseFor.LIKELIHOOD
    drawn = []
    for seed in seeds:
        noise_at = partial(SampleNoise, seed, *whose, draws=1)
        bounds, _ = likelihood.bounds({"": code.timesteps}, x0, noise_at)
        drawn.append(bounds["", ""].bits_per_dim)
    bits: ndarray = torch.stack(drawn).sum(1).mean(0).cpu().numpy()
    return bits


def uncodable(method: CovarianceMethod) -> str:
    """Return why images cannot be coded with a method; "" if they can."""
    if not method.has_density:
        return f"method '{method.label}' has no density to code with"
    by_pixel = isinstance(method, Structured) and not method.method.state_free
    return f"method '{method.label}': {UNCODED}" if by_pixel else ""


def _unfit(denoiser: Denoiser, decoder: Decoder, shape: tuple[int, ...]) -> str:
    if decoder.levels is None or decoder.levels > 256 or len(shape) != 3 or shape[0] not in (1, 3):
        return f"items of shape {shape}; expected images of 1 or 3 channels and at most 256 levels"
    if denoiser.network.conditional:
        return "the network takes labels or prompts, and a code for them is not there"
    return ""


def kind_of_processor() -> str:
    """Return the processor with the instructions that networks are computed by."""
    return f"{platform.machine()}, {torch.backends.cpu.get_cpu_capability()}"
