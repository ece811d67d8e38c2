"""Use your own diffusion model: load it, train a head, sample (docs/your_model.md).

Images are in [-1, 1] and have 256 levels, with limits as published; latents, the data of a folder
with an autoencoder, have neither. Timesteps and heads are the published ones by default.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from shutil import rmtree
from sys import stderr
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypedDict, Unpack, cast, overload

import torch
from jaxtyping import Float64, Int
from pydantic import ValidationError
from torch import Tensor

from ocm_core import covariance
from ocm_core.checkpoints import diffusers_folder, diffusers_models
from ocm_core.checkpoints.head_file import load_heads as load_heads
from ocm_core.checkpoints.head_file import save_heads as save_heads
from ocm_core.covariance.interface import NON_NEGATIVE, Clip, CovarianceMethod
from ocm_core.covariance.learned import CovarianceHead, LearnedMethod, RegressionMethod
from ocm_core.diffusion import basis as bases
from ocm_core.diffusion import kernels
from ocm_core.diffusion import timesteps as rules
from ocm_core.diffusion.denoiser import Denoiser
from ocm_core.diffusion.gaussian import Decoder
from ocm_core.diffusion.guidance import Guidance
from ocm_core.diffusion.kernels.ddpm import Ddpm
from ocm_core.diffusion.timesteps import Timesteps
from ocm_core.errors import OcmError, unknown
from ocm_core.features import extract
from ocm_core.io.state_file import checksum
from ocm_core.likelihood.bound import Likelihood, NoiseAt
from ocm_core.metrics.frechet import Statistics, frechet_distance
from ocm_core.metrics.precision_recall import Manifold, precision_recall
from ocm_core.networks.diffusers import Prompts, wrapped
from ocm_core.progress import Progress
from ocm_core.rng.noise import NoiseFor, SampleNoise
from ocm_core.rng.streams import seed_torch
from ocm_core.sampling.presets import altered, preset_named
from ocm_core.sampling.recipe import Recipe
from ocm_core.sampling.start import DataGaussian, warn_of_prior
from ocm_core.sampling.trajectories import Trajectories
from ocm_core.sampling.weights import WeighedSamples, weigh
from ocm_core.schema import timesteps as timesteps_params
from ocm_core.schema.experiment import (
    OptimiserParams,
    Order,
    PresetName,
    RecipeParams,
    SolveParams,
    SpectrumParams,
)
from ocm_core.shapes import Images
from ocm_core.text import save_grid as save_grid
from ocm_core.training import spectra
from ocm_core.training.baselines import DRAWS, gaussian_baseline, or_gaussian, target_means
from ocm_core.training.batches import InMemory
from ocm_core.training.head_fitting import HeadFitting
from ocm_core.training.loop import fit as train
from ocm_core.training.solving import INTERVALS, HeadSolving, solve
from ocm_core.uses import denoise as denoising
from ocm_core.uses import restore as restoration
from ocm_core.uses.denoise import Denoised
from ocm_core.uses.linear import Linear, Measured
from ocm_core.uses.operators import noise_of
from ocm_core.uses.restore import PLAIN, Algorithm, AlgorithmName, Restored

if TYPE_CHECKING:
    from diffusers.configuration_utils import ConfigMixin
    from diffusers.models.autoencoders.autoencoder_kl import AutoencoderKL
    from diffusers.models.transformers.dit_transformer_2d import DiTTransformer2DModel
    from diffusers.models.unets.unet_2d import UNet2DModel

    from ocm_core.export.scheduler import CovarianceScheduler
    from ocm_core.uses.codec import ImageCodec

    Model = UNet2DModel | DiTTransformer2DModel

ImageLabels = Int[Tensor, " image"] | None


class RecipeOptions(TypedDict, total=False):
    """How to sample; by default as in the papers: `ddpm`, 10 even timesteps, order 1."""

    steps: int  # network evaluations
    preset: PresetName | None  # kernel, order, timesteps and method for this number of steps
    sampler: str | None  # the kernel: ddpm, ddim
    order: Order | None  # ipndm is for ddim
    timesteps: timesteps_params.TimestepsParams | Timesteps | None  # a rule, or the timesteps


class SampleOptions(RecipeOptions, total=False):
    """Which samples are drawn; the defaults are those of `sample`."""

    count: int
    first: int  # the index of the first one
    seed: int
    guidance: float
    labels: ImageLabels
    batch_size: int
    start: Tensor | None


class BatchOptions(TypedDict, total=False):
    """How a set of images is gone through; by default in batches of 64, from seed 0."""

    labels: ImageLabels  # one for each image, for networks that take classes or prompts
    batch_size: int
    seed: int  # of the noise, which is each image's own
    progress: Progress[int]  # such as tqdm


@dataclass(frozen=True, repr=False)
class LatentDenoiser(Denoiser):
    """A denoiser of latents, which have no range and no levels."""


def load(
    folder: str | Path,
    device: str = "cpu",
    null_class: int | None = None,
    prompts: Sequence[str] | None = None,
) -> Denoiser:
    """Load a folder that diffusers wrote, with a model of a class that has an adapter.

    `null_class` is the label that stands for "no label", for guidance. Labels of a model that takes
    text are places in the list of `prompts`. With an autoencoder (`vae/`), images are its latents.
    """
    described = diffusers_folder.describe(folder)
    network = diffusers_models.read_network(described, null_class).eval().requires_grad_(False)
    if (described.text is None) != (prompts is None):
        found = f"{folder} has a {described.kind}"
        raise OcmError(f"prompts: expected those of a model that takes text, and {found}")
    if prompts is not None:
        network.prompts = Prompts(diffusers_models.TextEncoder.load(folder)([*prompts, ""]))
        network.null_label = len(prompts)
    denoiser = diffusers_models.trained_with(network.to(device), described.scheduler)
    return denoiser if described.vae is None else LatentDenoiser(**vars(denoiser))


def wrap(
    model: Model, scheduler: ConfigMixin, null_class: int | None = None, latent: bool = False
) -> Denoiser:
    """Wrap and freeze a model, with the schedule that it was trained with; of latents or images."""
    name = type(scheduler).__name__
    given = {**scheduler.config, "_class_name": name}
    config = diffusers_folder.resolved(given, model.config, name)
    if model.dtype not in (torch.float32, torch.float64):
        raise OcmError(f"model: weights in {model.dtype}; load it with torch_dtype=torch.float32")
    network = wrapped(model, null_class).eval().requires_grad_(False)
    denoiser = diffusers_models.trained_with(network, config)
    return LatentDenoiser(**vars(denoiser)) if latent else denoiser


def fit_head(
    denoiser: Denoiser,
    images: Images,
    method: str = "ocm",
    *,
    labels: ImageLabels = None,
    kind: str = "simple",
    fit: Literal["solve", "train"] = "solve",
    draws: int = 16_000,
    relative: bool = False,
    iterations: int = 20_000,
    batch_size: int = 64,
    learning_rate: float = 1e-3,
    seed: int = 0,
    folder: str | Path | None = None,
    progress: Progress[int] = iter,
) -> Denoiser:
    """Return the denoiser with what `method` needs; in `folder`, the same run resumes if killed.

    The head of `ocm`, `npr`, `sn` or `kdct` is solved for from so many noisy images (`draws`): a
    linear system, in place of a training of `iterations`. A relative head is trained: it predicts c
    in proportion to its mean over these images at each t, and stays positive. `METHOD+dct` is
    `METHOD` with the correlation of x̂_0's error in a basis, whose spectrum is estimated as well.
    """
    images, (label, _) = _data(denoiser, images, labels), covariance.split(method)
    rule, items = covariance.build(label), InMemory(images, labels)
    if basis := covariance.build(method).spectrum:
        denoiser = _with_spectrum(denoiser, items, basis, seed, batch_size)
    if not isinstance(rule, LearnedMethod):
        if basis:
            return denoiser
        raise OcmError(f"method '{method}' has no head to fit; sample with it as it is")
    is_regression = isinstance(rule, RegressionMethod)
    if relative and not (is_regression and fit == "train"):
        raise OcmError(f"method '{method}': a relative head predicts c, and takes fit='train'")
    if relative and rule.spectrum:
        raise OcmError(f"method '{method}' is relative to its spectrum; leave `relative` out")
    if fit == "solve" and not is_regression:
        raise OcmError(f"method '{method}' is no least-squares fit; give fit='train'")
    settings, device = _settings(iterations, batch_size, learning_rate, seed), _device(denoiser)
    with torch.random.fork_rng(), TemporaryDirectory() as scratch:
        seed_torch(seed)
        sizes = {"outputs": images[0].numel()} if rule.pooled else {}
        link = "positive" if rule.spectrum and fit == "train" else "identity"
        head = CovarianceHead(denoiser.network.make_head(kind, **sizes), link=link)
        how = (method, kind, fit, draws, relative, iterations, batch_size, learning_rate, seed)
        place = Path(folder or scratch) / _name_of(denoiser, images, labels, how)
        bare, means = HeadFitting(denoiser, {label: rule}, items, _limits(denoiser)[2]), {}
        if relative or fit == "solve":
            means = target_means(bare, seed, min(batch_size, DRAWS), device)
        if relative:
            gaussian = gaussian_baseline(denoiser.schedule, float(images.var(0).mean()))
            baseline = or_gaussian(means[label], gaussian)
            head = CovarianceHead(head.net, baseline, "tapered", unit="one")
        fitted = replace(denoiser, heads={**denoiser.heads, label: head.to(device)})
        objective = replace(bare, denoiser=fitted)
        if fit == "solve":
            system = HeadSolving(objective, _solve_params(draws, batch_size, seed), device)
            _announce(system)
            solve(system, place, means, progress=progress)
        else:
            train(objective, settings, place, device=device, progress=progress).use_average()
        rmtree(place, ignore_errors=True)
    head.eval().requires_grad_(False)
    return fitted


def _name_of(denoiser: Denoiser, images: Images, labels: ImageLabels, how: object) -> str:
    """Return a folder's name for what is fitted to what: the same alone resumes there."""
    given = {"images": images} if labels is None else {"images": images, "labels": labels}
    return checksum(given | denoiser.network.state_dict(), repr(how))[:16]


def _solve_params(draws: int, batch_size: int, seed: int) -> SolveParams:
    """Return the settings, with two batches at least in each interval of t."""
    size = min(batch_size, max(1, draws // (2 * INTERVALS)))
    with _named_problem():
        return SolveParams(draws=draws, batch_size=size, seed=seed)


def _announce(system: HeadSolving) -> None:
    """Say what solving will take, by the time that one batch takes."""
    started = perf_counter()
    system.add({}, 0)
    seconds = (perf_counter() - started) * len(system.batches)
    draws = len(system.batches) * system.settings.batch_size
    what = f"{draws:,} noisy images, with a product with the Jacobian each where c needs one"
    print(f"fit_head: {what}; about {seconds / 60:.2g} min", file=stderr)


def _with_spectrum(
    denoiser: Denoiser, items: InMemory, basis: str, seed: int, batch_size: int
) -> Denoiser:
    """Return the denoiser with the spectrum in a basis, from items as samples are limited."""
    settings = SpectrumParams(batch_size=batch_size, seed=seed)
    vectors, times = bases.build(basis, items.x0), spectra.grid(denoiser.schedule, settings)
    found = (
        spectra.variances(
            denoiser, items, vectors, t, settings, _limits(denoiser)[0], _device(denoiser)
        )
        for t in times
    )
    spectrum = spectra.spectrum_of(vectors, times, found).to(_device(denoiser))
    return replace(denoiser, spectra={**denoiser.spectra, basis: spectrum})


def recipe(
    denoiser: Denoiser,
    method: str | None = None,
    guidance: float = 1.0,
    **how: Unpack[RecipeOptions],
) -> Recipe:
    """Return the recipe that `sample` draws by; options can be given beside a preset."""
    (params, steps), (clip, levels, _) = _recipe_params(**how), _limits(denoiser)
    rule = _ready(denoiser, method or preset_named(how.get("preset")).method)
    if isinstance(params.timesteps, timesteps_params.OptimalTimesteps):
        given = "give those of api.optimal_timesteps, or as `ocm sample --timesteps 10,200,1000`"
        raise OcmError(f"timesteps: optimal ones are found on images; {given}")
    limits: Any = {"clip": clip, "levels": levels, "guidance": Guidance(guidance)}
    return Recipe.from_params(params, denoiser.schedule, steps, rule, **limits)


@overload
def sample(
    denoiser: Denoiser,
    shape: Sequence[int],
    method: str | None = None,
    *,
    log_prob: Literal[True],
    **how: Unpack[SampleOptions],
) -> WeighedSamples: ...


@overload
def sample(
    denoiser: Denoiser,
    shape: Sequence[int],
    method: str | None = None,
    **how: Unpack[SampleOptions],
) -> Images: ...


def sample(
    denoiser: Denoiser,
    shape: Sequence[int],
    method: str | None = None,
    *,
    log_prob: bool = False,
    count: int = 16,
    first: int = 0,
    seed: int = 0,
    guidance: float = 1.0,
    labels: ImageLabels = None,
    batch_size: int = 64,
    start: Tensor | None = None,
    **how: Unpack[RecipeOptions],
) -> Images | WeighedSamples:
    """Draw images of `shape` (channel, height, width); the i-th of a seed is always the same.

    Timesteps that end far below T leave much of the data: with `start`, images, samples begin with
    these images' Gaussian there instead of N(0, I). With `log_prob` the last step keeps its noise,
    and samples have the log-densities of their trajectories: `importance(log_density)` weighs them.
    """
    if labels is not None and len(labels) != count:
        raise OcmError(f"{len(labels)} labels for count = {count} images; give one for each")
    chosen, device = recipe(denoiser, method, guidance, **how), _device(denoiser)
    if start is None:
        warn_of_prior(denoiser.schedule, chosen.timesteps)
    else:
        chosen = replace(chosen, start=DataGaussian.of(_data(denoiser, start, None)))
    weighed, drawn = list[WeighedSamples](), list[Images]()
    for low in range(0, count, batch_size):
        batch = slice(low, low + batch_size)
        label = None if labels is None else labels[batch].to(device)
        rows = range(first, first + count)[batch]
        noise = SampleNoise(seed, rows, tuple(shape), device, draws=chosen.draws)
        if log_prob:
            weighed.append(weigh(chosen, denoiser, noise, label))
        else:
            drawn.append(chosen.draw(denoiser, noise, label).x)
    return WeighedSamples.joined(weighed) if log_prob else torch.cat(drawn)


def optimal_timesteps(
    denoiser: Denoiser,
    images: Images,
    method: str = "ocm",
    steps: int = 10,
    *,
    points: int = 92,
    decoder_variance: timesteps_params.DecoderVariance | None = None,
    **batches: Unpack[BatchOptions],
) -> Timesteps:
    """Return the timesteps, out of `points`, that make the bound on (training) images least.

    Give `bits_per_dim` the same `decoder_variance`: `method` for the method's own. With `gits` as
    the method, DDIM leaves fine trajectories least: one for each image, of which only number, shape
    and labels count.
    """
    source: Likelihood | Trajectories = Trajectories(denoiser, _limits(denoiser)[0])
    if method != timesteps_params.GITS:
        source = _likelihood(denoiser, method, decoder_variance)
    elif decoder_variance:
        raise OcmError("decoder_variance: timesteps of 'gits' have no decoder; leave it out")
    schedule = denoiser.schedule
    rule = timesteps_params.PowerTimesteps(exponent=2.0, first=1)
    grid = rules.grid(rule, schedule, min(points, schedule.steps))
    costs, weights = [], []
    for batch in _batches(denoiser, images, NoiseFor.TIMESTEPS, **batches):
        costs.append(source.step_costs(grid, *batch)[method])
        weights.append(len(batch[0]))
    by_nfe = rules.averaged(costs, weights).optimal()
    if steps not in by_nfe:
        raise OcmError(f"steps = {steps}: expected 1 to {max(by_nfe)}; more `points` allow more")
    warn_of_prior(schedule, by_nfe[steps])
    return by_nfe[steps]


def bits_per_dim(
    denoiser: Denoiser,
    images: Images,
    method: str,
    timesteps: Timesteps,
    *,
    decoder_variance: timesteps_params.DecoderVariance | None = None,
    **batches: Unpack[BatchOptions],
) -> Float64[Tensor, " image"]:
    """Return the variational bound on each image's bits per dimension, with DDPM steps.

    The last step into pixels has a fixed variance, or the method's own, which is the default for
    latents.
    """
    likelihood, bits = _likelihood(denoiser, method, decoder_variance), []
    for batch in _batches(denoiser, images, NoiseFor.LIKELIHOOD, **batches):
        bounds, _ = likelihood.bounds({"given": timesteps}, *batch)
        bits.append(bounds["given", method].bits_per_dim.sum(0).cpu())
    return torch.cat(bits)


def denoise(
    denoiser: Denoiser,
    images: Images,
    method: str,
    sigma: float | Tensor | None = None,
    **batches: Unpack[BatchOptions],
) -> Denoised:
    """Return what noisy images y = x_0 + σ n are without their noise, with a deviation by pixel.

    One pass of the network gives both. σ is that of data in [-1, 1] (or of latents), a number or
    one for each image; without it, it is estimated by image from the finest diagonal details, which
    takes texture for noise. Images may well be outside of [-1, 1]: cut off, the noise is another.
    """
    images, clip = _data(denoiser, images, batches.get("labels"), noisy=True), _limits(denoiser)[0]
    return denoising.denoise(
        denoiser, images, _ready(denoiser, method), sigma, clip=clip, **batches
    )


def restore(
    denoiser: Denoiser,
    y: Tensor,
    physics: Linear,
    method: str | None = None,
    algorithm: AlgorithmName = "kalman",
    *,
    sigma: float | None = None,
    count: int = 8,
    guidance: float = 1.0,
    labels: ImageLabels = None,
    batch_size: int = 64,
    seed: int = 0,
    iterations: int = 3,
    scale: float = 1.0,
    progress: Progress[int] = iter,
    **how: Unpack[RecipeOptions],
) -> Restored:
    """Return draws of images x_0 given y = A x_0 + σ n, with their mean and deviation.

    A is `physics`, a `LinearPhysics` of deepinv or anything with `A` and `A_adjoint`, for images in
    [-1, 1]; σ is that of its Gaussian noise if it is not given. `kalman` takes the covariance of
    `method`, which had better be correlated (`analytic+dct`), and no gradients. `mmps` takes so
    many `iterations` of products with the Jacobian a step; `pigdm`, and `dps` with its `scale`, are
    there for comparison. Steps are DDPM's.
    """
    chosen = Algorithm(algorithm, iterations, scale)
    if chosen.takes_method and method is None:
        raise OcmError("method: kalman takes a covariance; name one, such as analytic+dct")
    name = method if chosen.takes_method else PLAIN.label
    measured = Measured(y, physics, noise_of(physics, sigma))
    return restoration.restore(
        *(denoiser, measured, recipe(denoiser, name, guidance, **how), chosen),
        count=count,
        labels=labels,
        batch_size=batch_size,
        seed=seed,
        progress=progress,
    )


def codec(
    denoiser: Denoiser,
    shape: Sequence[int],
    method: str = "ocm",
    levels: int = 256,
    **how: Unpack[RecipeOptions],
) -> ImageCodec:
    """Return a code for images of `shape` (channel, height, width): uint8 arrays from 0 on.

    Images take as many bits as their bound says: `encode` gives them, and `decode` the images. The
    last step has the method's own variance.
    """
    from ocm_core.uses.codec import image_codec

    chosen = recipe(denoiser, method, **how)
    known = None if isinstance(denoiser, LatentDenoiser) else levels
    decoder = Decoder(known, variance="method")
    return image_codec(chosen, denoiser, decoder, tuple(shape))


class Evaluation(NamedTuple):
    """Measures of samples against images, in the features of EfficientNet-Lite0 (not FID)."""

    bits_per_dim: float | None  # None: the method or the kernel has no bound
    frechet_distance: float
    precision: float
    recall: float


def evaluate(
    denoiser: Denoiser,
    images: Tensor,
    method: str = "ocm",
    *,
    labels: ImageLabels = None,
    batch_size: int = 64,
    seed: int = 0,
    **how: Unpack[RecipeOptions],
) -> Evaluation:
    """Measure how likely images are that are new to the model, and how near samples come."""
    if isinstance(denoiser, LatentDenoiser):
        raise OcmError("evaluate: samples are latents; an experiment (`ocm init`) decodes them")
    from ocm_core.features import efficientnet_lite0

    images, chosen = _data(denoiser, images, labels), recipe(denoiser, method, **how)
    given: Any = {"labels": labels, "batch_size": batch_size, "seed": seed}
    drawn = sample(denoiser, images.shape[1:], method, count=len(images), **given, **how)
    bound = None
    if isinstance(chosen.kernel, Ddpm) and chosen.method.has_density:
        bound = float(bits_per_dim(denoiser, images, method, chosen.timesteps, **given).mean())
    space = efficientnet_lite0.build(_device(denoiser))
    real, generated = (
        extract(space, ((x.cpu().clamp(-1, 1) + 1) * 127.5).round().to(torch.uint8), batch_size)
        for x in (images, drawn)
    )
    shares = precision_recall(real=Manifold.of(real), generated=Manifold.of(generated))
    distance = frechet_distance(real=Statistics.of(real), generated=generated)
    return Evaluation(bound, distance, shares.precision, shares.recall)


def scheduler(
    denoiser: Denoiser,
    base: ConfigMixin,
    method: str = "ocm",
    *,
    model: Model | None = None,
    **how: Unpack[RecipeOptions],
) -> CovarianceScheduler:
    """Return a scheduler that samples by a recipe in any pipeline of diffusers.

    `base` is the scheduler that the model was trained with. A head reads features of `model`, the
    one that the pipeline evaluates. A preset is that of `steps`.
    """
    config = {**base.config, "_class_name": type(base).__name__}
    sizes = {} if model is None else model.config
    resolved = diffusers_folder.resolved(config, sizes, type(base).__name__)
    made = _scheduler(denoiser, resolved, method, **how)
    has_head = covariance.split(method)[0] in denoiser.heads
    if has_head and model is None:
        raise OcmError(f"scheduler: the head of '{method}' needs the pipeline's `model`")
    made.attach(denoiser, model if has_head else None)
    return made


def _scheduler(
    denoiser: Denoiser, config: Mapping[str, Any], method: str, **how: Unpack[RecipeOptions]
) -> CovarianceScheduler:
    from ocm_core.export.scheduler import CovarianceScheduler

    trained, (clip, levels, _) = diffusers_folder.schedule_keys(config), _limits(denoiser)
    made: CovarianceScheduler = CovarianceScheduler(
        **diffusers_folder.scheduler_keys(trained, diffusers_folder.prediction_of(config)),
        method=method,
        method_kind=method,
        method_options=_ready(denoiser, method).options,
        recipe=_recipe_params(**how)[0].model_dump(),
        clip_x0=clip.x0,
        clip_covariance=clip.c_max,
        levels=levels,
        null_class=denoiser.network.null_label,
    )
    return made


def save_pipeline(
    denoiser: Denoiser,
    model: str | Path | Model,
    folder: str | Path,
    method: str = "ocm",
    *,
    scheduler: ConfigMixin | None = None,
    vae: AutoencoderKL | None = None,
    licence: str | None = None,
    trained_on: str = "images of your own",
    **how: Unpack[RecipeOptions],
) -> Path:
    """Write a new folder that plain diffusers opens: `model`, with the denoiser's heads.

    `model` is what was given to `load`, and its autoencoder and text encoder come along; or what
    was given to `wrap`, and then `scheduler` too, and the `vae` of latents.
    """
    from ocm_core.export import pipeline
    from ocm_core.latents.vae import Vae

    text, base = None, type(model).__name__
    if isinstance(model, str | Path):
        described = diffusers_folder.describe(model)
        base, licence = described.folder.resolve().name, licence or described.licence
        config: Mapping[str, Any] = described.scheduler
        model = diffusers_models.read_model(described)
        text = diffusers_models.TextEncoder.load(described.folder) if described.text else None
        vae = Vae.load(described.folder / "vae").model if described.vae else vae
    elif scheduler is None:
        raise OcmError("save_pipeline: a model in memory needs its `scheduler`, as in `wrap`")
    else:
        given = {**scheduler.config, "_class_name": type(scheduler).__name__}
        config = diffusers_folder.resolved(given, model.config, type(scheduler).__name__)
    if vae is None and isinstance(denoiser, LatentDenoiser):
        raise OcmError("save_pipeline: a model of latents needs its `vae`, an AutoencoderKL")
    made, heads = _scheduler(denoiser, config, method, **how), cast(Any, denoiser.heads)
    label, basis = covariance.split(method)[0], covariance.build(method).spectrum
    used = {label: heads[label]} if label in heads else {}
    kept = {basis: denoiser.spectra[basis]} if basis else {}
    fitted = replace(denoiser, heads=used, spectra=kept)
    card = pipeline.Card(base, base, licence, trained_on, method, _recipe_params(**how)[1])
    return pipeline.save_pipeline(folder, model, made, fitted, card, vae, text)


def _recipe_params(
    steps: int = 10,
    preset: PresetName | None = None,
    sampler: str | None = None,
    order: Order | None = None,
    timesteps: timesteps_params.TimestepsParams | Timesteps | None = None,
) -> tuple[RecipeParams, int]:
    """Return the parameters of a recipe, and its number of steps."""
    if sampler is not None and sampler not in kernels.available():
        raise OcmError(f"sampler: {unknown(sampler, kernels.available())}")
    if isinstance(timesteps, tuple):
        listed = timesteps_params.ListedTimesteps(values=[[*timesteps]])
        steps, timesteps = len(timesteps), listed
    return altered(preset_named(preset).recipe(steps), sampler, order, timesteps), steps


def _ready(denoiser: Denoiser, method: str) -> CovarianceMethod:
    """Return the method if the denoiser has what it needs; `iddpm` may be the network's own."""
    options = {}
    if method == "iddpm" and denoiser.network.learns_variance and method not in denoiser.heads:
        options = {"source": "network", "lower_end": "timesteps"}  # as in DiT
    rule = covariance.build(method, **options)
    label, basis = covariance.split(method)[0], rule.spectrum
    if rule.needs == "head" and label not in denoiser.heads:
        raise OcmError(
            f"method '{method}' has no head yet; fit it with api.fit_head (`ocm sample --head` "
            "takes its file), or name a method that needs none, such as beta_tilde"
        )
    if basis and basis not in denoiser.spectra:
        raise OcmError(f"method '{method}' has no spectrum yet; api.fit_head estimates it")
    if rule.needs == "moments" and denoiser.moments is None:
        needs = "needs a table of moments, as experiments have: `ocm init`"
        raise OcmError(f"method '{method}' {needs}")
    return rule


def _limits(denoiser: Denoiser) -> tuple[Clip, int | None, Decoder]:
    """Return the limits on x̂_0 and c, the grey levels and the decoder: latents have no limits."""
    if isinstance(denoiser, LatentDenoiser):
        return NON_NEGATIVE, None, Decoder(levels=None, variance="method")
    return Clip(x0=1.0, c_max=1.0), 256, Decoder(256)


def _likelihood(
    denoiser: Denoiser, method: str, variance: timesteps_params.DecoderVariance | None = None
) -> Likelihood:
    clip, _, decoder = _limits(denoiser)
    decoder = replace(decoder, variance=variance or decoder.variance)
    return Likelihood(denoiser, {method: _ready(denoiser, method)}, decoder, clip)


def _batches(
    denoiser: Denoiser,
    images: Tensor,
    use: NoiseFor,
    labels: ImageLabels = None,
    batch_size: int = 64,
    seed: int = 0,
    progress: Progress[int] = iter,
) -> Iterator[tuple[Images, NoiseAt, ImageLabels, Progress[int]]]:
    """Yield images with their own noise, which is the same at every t to choose timesteps by."""
    images, device = _data(denoiser, images, labels), _device(denoiser)

    def noise(rows: range, t: int) -> SampleNoise:
        time = 0 if use is NoiseFor.TIMESTEPS else t
        return SampleNoise(seed, rows, tuple(images.shape[1:]), device, use, time, draws=1)

    for start in range(0, len(images), batch_size):
        batch = slice(start, start + batch_size)
        label = None if labels is None else labels[batch].to(device)
        rows = range(len(images))[batch]
        yield images[batch].to(device), partial(noise, rows), label, progress


def _settings(iterations: int, batch_size: int, learning_rate: float, seed: int) -> OptimiserParams:
    given: Any = {"iterations": iterations, "batch_size": batch_size, "seed": seed}
    given |= {"learning_rate": learning_rate, "checkpoint_every": max(1, iterations // 20)}
    ema = iterations / (iterations + 10)  # the average is over the last tenth
    with _named_problem():
        return OptimiserParams(**given, ema=ema, precision="tf32")


@contextmanager
def _named_problem() -> Iterator[None]:
    try:
        yield
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise OcmError(f"fit_head: {first['loc'][0]}: {first['msg'].lower()}") from None


def _data(denoiser: Denoiser, images: Tensor, labels: ImageLabels, noisy: bool = False) -> Images:
    """Return latents as they are, and images of uint8 or [-1, 1] as [-1, 1]; guess nothing.

    Noisy images may be beyond.
    """
    if labels is not None and len(labels) != len(images):
        raise OcmError(f"{len(labels)} labels for {len(images)} images; give one for each")
    found = f"{images.dtype} of shape {tuple(images.shape)}"
    fits = images.ndim == 4 and images.is_floating_point()
    if isinstance(denoiser, LatentDenoiser):
        if not fits:
            raise OcmError(
                f"latents: {found}; expected floating-point ones of shape (image, channel, height,"
                " width), which the model's autoencoder gives, times its scaling_factor"
            )
        return images
    if images.ndim == 4 and images.dtype == torch.uint8:
        return images.float() / 127.5 - 1.0
    least, most = (float(images.min()), float(images.max())) if images.numel() else (0.0, 0.0)
    if not fits or (max(-least, most) > 1.0 and not noisy) or least >= 0.0:
        hint = " (if they are in [0, 1], give 2 * images - 1)" if 0 <= least <= most <= 1 else ""
        raise OcmError(
            f"images: {found}, from {least:.4g} to {most:.4g}; expected uint8 (0 to 255), or"
            f" float32 between -1 and 1, of shape (image, channel, height, width){hint}"
        )
    return images


def _device(denoiser: Denoiser) -> str:
    return str(next(denoiser.network.parameters(), torch.empty(0)).device)
