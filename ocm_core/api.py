"""The short way for a model of one's own: load it, train a head, sample (docs/your_model.md).

Images are in [-1, 1] and have 256 levels, with limits as published; latents, the data of a folder
with an autoencoder, have neither. Chains and heads are the published ones unless others are asked
for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

import torch
from jaxtyping import Float64, Int
from pydantic import ValidationError
from torch import Tensor

from ocm_core import covariance
from ocm_core.checkpoints.diffusers_folder import (
    check_scheduler,
    describe,
    read_scheduler_config,
    schedule_keys,
)
from ocm_core.checkpoints.diffusers_models import (
    TIME,
    denoiser_of_folder,
    read_model,
    read_network,
)
from ocm_core.checkpoints.head_file import load_heads, save_heads
from ocm_core.checkpoints.text_encoder import TextEncoder
from ocm_core.covariance.interface import NON_NEGATIVE, Clip, CovarianceMethod
from ocm_core.covariance.learned import CovarianceHead, LearnedMethod, RegressionMethod
from ocm_core.diffusion import chains
from ocm_core.diffusion import schedule as schedules
from ocm_core.diffusion.chains import Chain, averaged
from ocm_core.diffusion.denoiser import Denoiser
from ocm_core.diffusion.gaussian import Decoder, pixel_sigma_limit
from ocm_core.diffusion.guidance import guided
from ocm_core.diffusion.schedule import Schedule
from ocm_core.errors import OcmError
from ocm_core.export.folder import Card
from ocm_core.export.folder import save_pipeline as write_pipeline
from ocm_core.export.scheduler import CovarianceScheduler
from ocm_core.features.interface import extract
from ocm_core.image_grid import save_grid
from ocm_core.latents.vae import Vae
from ocm_core.likelihood.bound import Likelihood, NoiseAt
from ocm_core.metrics.frechet import Statistics, frechet_distance
from ocm_core.metrics.precision_recall import Manifold, precision_recall
from ocm_core.networks.converted import denoiser_of
from ocm_core.networks.diffusers import wrapped
from ocm_core.networks.prompts import Prompts
from ocm_core.progress import Progress
from ocm_core.rng.noise import SampleNoise, Use
from ocm_core.rng.streams import seed_torch
from ocm_core.samplers.ancestral import Watcher, ancestral
from ocm_core.samplers.cell_sampler import kernel_of
from ocm_core.samplers.order import Order
from ocm_core.samplers.presets import altered, preset_named
from ocm_core.schema.chains import ChainParams, EvenChain, ListChain, OptimalChain, PowerChain
from ocm_core.schema.experiment import OptimiserParams, PresetName, SchedulerSchedule, WalkParams
from ocm_core.shapes import Images
from ocm_core.training.baselines import DRAWS, gaussian_baseline, or_gaussian, target_means
from ocm_core.training.batches import InMemory
from ocm_core.training.head_fitting import HeadFitting
from ocm_core.training.loop import fit
from ocm_core.training.state import state_file

if TYPE_CHECKING:
    from diffusers.configuration_utils import ConfigMixin
    from diffusers.models.autoencoders.autoencoder_kl import AutoencoderKL
    from diffusers.models.transformers.dit_transformer_2d import DiTTransformer2DModel
    from diffusers.models.unets.unet_2d import UNet2DModel

__all__ = [
    "Evaluation",
    "bits_per_dim",
    "evaluate",
    "load",
    "load_heads",
    "optimal_chain",
    "sample",
    "save_grid",
    "save_heads",
    "save_pipeline",
    "train_head",
    "wrap",
]

ImageLabels = Int[Tensor, " image"] | None
LIMITS = Clip(x0=1.0, c_max=1.0)
LEVELS = 256
NO_LIMITS = {"clip_x0": None, "clip_covariance": None, "levels": None}  # of latents
LEARNED_RANGE = {"source": "network", "lower_end": "chain"}  # of `iddpm`, as DiT has it


@dataclass(frozen=True)
class LatentDenoiser(Denoiser):
    """Of latents, which have no range and no levels."""


def load(
    folder: str | Path,
    device: str = "cpu",
    null_class: int | None = None,
    prompts: Sequence[str] | None = None,
) -> Denoiser:
    """A folder that diffusers wrote: a `UNet2DModel`, a DiT or a `UNet2DConditionModel`.

    `null_class` is the label that stands for "no label", for guidance; a DiT has its own. Labels
    of a model that takes text are places in the list of `prompts`. Where there is an autoencoder
    (`vae/`), images are its latents everywhere here, in the scale that the model was trained with.
    """
    described = describe(folder)
    network = read_network(described, null_class).eval().requires_grad_(False)
    if (described.text is None) != (prompts is None):
        raise OcmError(
            f"prompts: expected those of a model that takes text, and {folder} has a"
            f" {described.kind}"
        )
    if prompts is not None:
        network.prompts = Prompts(TextEncoder.load(folder)([*prompts, ""]))
        network.null_label = len(prompts)
    denoiser = denoiser_of_folder(network.to(device), described)
    return denoiser if described.vae is None else LatentDenoiser(**vars(denoiser))


def wrap(
    model: UNet2DModel | DiTTransformer2DModel,
    scheduler: ConfigMixin,
    null_class: int | None = None,
    latent: bool = False,
) -> Denoiser:
    """The model, frozen from here on, with the noise schedule that it was trained with.

    `latent` says that its data are those of an autoencoder.
    """
    config = {**scheduler.config, "_class_name": type(scheduler).__name__}
    check_scheduler(config, type(scheduler).__name__)
    if model.dtype not in (torch.float32, torch.float64):
        raise OcmError(
            f"this {type(model).__name__} has weights in {model.dtype}; load it with"
            " torch_dtype=torch.float32 (sampling in bfloat16 is a setting of the denoiser)"
        )
    network = wrapped(model, null_class).eval().requires_grad_(False)
    schedule = schedules.of_params(SchedulerSchedule.model_validate(schedule_keys(config)))
    denoiser = denoiser_of(network, schedule, TIME, config.get("prediction_type", "epsilon"))
    return LatentDenoiser(**vars(denoiser)) if latent else denoiser


def train_head(
    denoiser: Denoiser,
    images: Images,
    method: str = "ocm",
    *,
    labels: ImageLabels = None,
    kind: str = "simple",
    relative: bool = False,
    iterations: int = 20_000,
    batch_size: int = 64,
    learning_rate: float = 1e-3,
    seed: int = 0,
    folder: str | Path | None = None,
    progress: Progress[int] = iter,
) -> Denoiser:
    """The denoiser with a trained head of `method`; in `folder`, a run that was killed resumes.

    A relative head predicts c in proportion to its mean over these images at each t, which takes as
    long as some sixty to a hundred iterations to tell, and stays positive: better with few steps.
    Where that mean is not positive, as an imperfect score has it at large t, the c of a Gaussian
    with the images' variance stands in for it.
    """
    images = _data(denoiser, images, labels)
    rule = covariance.build(method)
    if not isinstance(rule, LearnedMethod):
        raise OcmError(f"method '{method}' has no head to train; sample with it as it is")
    if relative and not isinstance(rule, RegressionMethod):
        raise OcmError(f"method '{method}' does not predict c, and cannot be relative to its mean")
    settings = _settings(iterations, batch_size, learning_rate, seed)
    with torch.random.fork_rng(), TemporaryDirectory() as scratch:
        seed_torch(seed)
        net, device = denoiser.network.make_head(kind), str(_device(denoiser))
        bare = HeadFitting(denoiser, {method: rule}, InMemory(images, labels), _decoder(denoiser))
        if relative:
            gaussian = gaussian_baseline(denoiser.schedule, float(images.var(0).mean()))
            means = target_means(bare, seed, min(batch_size, DRAWS), device)[method]
            head = CovarianceHead(net, or_gaussian(means, gaussian), link="tapered", unit="one")
        else:
            head = CovarianceHead(net)
        trained = replace(denoiser, heads={**denoiser.heads, method: head.to(device)})
        objective = replace(bare, denoiser=trained)
        place = Path(folder or scratch)
        state = fit(objective, settings, place, device=device, progress=progress)
        state.use_average()
        state_file(place).unlink(missing_ok=True)
    head.eval().requires_grad_(False)
    return trained


def sample(
    denoiser: Denoiser,
    shape: tuple[int, int, int],
    method: str | None = None,
    *,
    steps: int = 10,
    count: int = 16,
    first: int = 0,
    seed: int = 0,
    preset: PresetName | None = None,
    sampler: Literal["ddpm", "ddim"] | None = None,
    order: Order | None = None,
    chain: ChainParams | Chain | None = None,
    guidance: float = 1.0,
    labels: ImageLabels = None,
    batch_size: int = 64,
    watch: Watcher | None = None,
) -> Images:
    """Images of `shape` (channel, height, width); the i-th of a seed has its own noise, always.

    A preset is a method, sampler (kernel), order and chain for this number of steps, each of which
    can be given beside it; without one they are those of the papers: `ocm`, `ddpm`, 1, even. A
    chain may also be the timesteps themselves, whose number `steps` then is. `guidance` is the
    scale w, for networks with a null class. `first` is the i to begin with; `watch` is called at
    every step of every batch.
    """
    if labels is not None and len(labels) != count:
        raise OcmError(f"{len(labels)} labels for count = {count} images; give one for each")
    chosen, device = preset_named(preset), _device(denoiser)
    if isinstance(chain, tuple):
        steps, chain = len(chain), ListChain(timesteps=[[*chain]])
    walk = altered(chosen.walk(steps), sampler, order, chain)
    visited = _chain(walk, denoiser.schedule, steps)
    model, rule = guided(denoiser, guidance), _ready(denoiser, method or chosen.method)
    drawn = [
        ancestral(
            model,
            rule,
            visited,
            SampleNoise(seed, rows, tuple(shape), device, draws=len(visited)),
            kernel=kernel_of(walk),
            order=walk.order,
            covariance_scale=walk.covariance_scale,
            clip=_limits(denoiser),
            last_sigma=rule.last_sigma(_last_sigma(denoiser, walk)),
            label=None if labels is None else labels[rows.start - first :][: len(rows)].to(device),
            watch=watch,
        ).x
        for rows in _batches(range(first, first + count), batch_size)
    ]
    return torch.cat(drawn)


def optimal_chain(
    denoiser: Denoiser,
    images: Images,
    method: str = "ocm",
    steps: int = 10,
    *,
    labels: ImageLabels = None,
    points: int = 92,
    batch_size: int = 64,
    seed: int = 0,
    progress: Progress[int] = iter,
) -> Chain:
    """The timesteps of the chain that makes the bound on these images least, from a grid of many.

    They had better be training images: a chain that was chosen on test images flatters them.
    `steps` can be as many as there are `points`, which are denser near the data.
    """
    images = _data(denoiser, images, labels)
    schedule = denoiser.schedule
    fewer = min(points, schedule.steps)
    grid = chains.grid(PowerChain(exponent=2.0, first=1), schedule, fewer)
    likelihood = _likelihood(denoiser, _ready(denoiser, method))
    rows = list(_batches(range(len(images)), batch_size))
    costs = [
        likelihood.step_costs(
            grid,
            images[batch].to(_device(denoiser)),
            _noise_at(denoiser, images, batch, seed, Use.CHAINS),
            _labels_of(denoiser, labels, batch),
            progress,
        )[method]
        for batch in rows
    ]
    found = averaged(costs, [len(batch) for batch in rows]).optimal()
    if steps not in found:
        raise OcmError(f"steps = {steps}: expected 1 to {max(found)}; `points` gives longer chains")
    return found[steps]


def bits_per_dim(
    denoiser: Denoiser,
    images: Images,
    method: str,
    chain: Chain,
    *,
    labels: ImageLabels = None,
    batch_size: int = 64,
    seed: int = 0,
    progress: Progress[int] = iter,
) -> Float64[Tensor, " image"]:
    """The variational bound on each image's bits per dimension, along a chain of DDPM steps."""
    images = _data(denoiser, images, labels)
    likelihood = _likelihood(denoiser, _ready(denoiser, method))
    found = []
    for batch in _batches(range(len(images)), batch_size):
        bounds, _ = likelihood.bounds(
            {"chain": chain},
            images[batch].to(_device(denoiser)),
            _noise_at(denoiser, images, batch, seed, Use.LIKELIHOOD),
            _labels_of(denoiser, labels, batch),
            progress,
        )
        found.append(bounds["chain", method].bits_per_dim.sum(0).cpu())
    return torch.cat(found)


class Evaluation(NamedTuple):
    """Of samples against images: distances are in the features of EfficientNet-Lite0, not FID."""

    bits_per_dim: float | None  # None: the method or the kernel has no bound
    frechet_distance: float
    precision: float
    recall: float


def evaluate(
    denoiser: Denoiser,
    images: Tensor,
    method: str = "ocm",
    *,
    steps: int = 10,
    count: int | None = None,
    sampler: Literal["ddpm", "ddim"] = "ddpm",
    chain: ChainParams | Chain | None = None,
    labels: ImageLabels = None,
    batch_size: int = 64,
    seed: int = 0,
) -> Evaluation:
    """How likely these images are, and how near samples come to them; better not those of training.

    `count` samples are drawn, as many as there are images unless it is given; with `labels`, of
    the same classes in the same order.
    """
    if isinstance(denoiser, LatentDenoiser):
        raise OcmError(
            "evaluate: distances are between images, and samples of this model are latents; make "
            "it an experiment (`ocm init`), which decodes them"
        )
    images = _data(denoiser, images, labels)
    drawn_labels = (
        None if labels is None else labels[torch.arange(count or len(labels)) % len(labels)]
    )
    samples = sample(
        denoiser,
        cast(tuple[int, int, int], tuple(images.shape[1:])),
        method,
        steps=steps,
        count=count or len(images),
        seed=seed,
        sampler=sampler,
        chain=chain,
        labels=drawn_labels,
        batch_size=batch_size,
    )
    bound = None
    if sampler == "ddpm":
        visited = (
            chain
            if isinstance(chain, tuple)
            else chains.build(chain or EvenChain(), denoiser.schedule, steps)
        )
        bits = bits_per_dim(
            denoiser, images, method, visited, labels=labels, batch_size=batch_size, seed=seed
        )
        bound = float(bits.mean())
    return Evaluation(bound, *_distances(images, samples, batch_size, str(_device(denoiser))))


def _distances(
    images: Images, samples: Images, batch_size: int, device: str
) -> tuple[float, float, float]:
    space = import_module("ocm_core.features.efficientnet_lite0").build(device)
    real, generated = (
        extract(space, ((x.cpu().clamp(-1, 1) + 1) * 127.5).round().to(torch.uint8), batch_size)
        for x in (images, samples)
    )
    shares = precision_recall(real=Manifold.of(real), generated=Manifold.of(generated))
    distance = frechet_distance(real=Statistics.of(real), generated=generated)
    return distance, shares.precision, shares.recall


def save_pipeline(
    denoiser: Denoiser,
    model: str | Path | UNet2DModel | DiTTransformer2DModel,
    folder: str | Path,
    method: str = "ocm",
    *,
    scheduler: ConfigMixin | None = None,
    vae: AutoencoderKL | None = None,
    steps: int = 10,
    preset: PresetName | None = None,
    sampler: Literal["ddpm", "ddim"] | None = None,
    order: Order | None = None,
    chain: ChainParams | Chain | None = None,
    base: str | None = None,
    licence: str | None = None,
    trained_on: str = "images of your own",
) -> Path:
    """A new folder that plain diffusers opens: `model`, with the heads of the `denoiser` on it.

    `model` is what was given to `load`, and its autoencoder and text encoder come along; or what
    was given to `wrap`, and then `scheduler` too, and the `vae` of latents.

    `DiffusionPipeline.from_pretrained(folder, custom_pipeline=folder, trust_remote_code=True)`
    gives the samples that `sample` gives for the same noise. `base`, `licence` and `trained_on` are
    what the model card says; `steps` is its example, and what a preset is looked up for.
    """
    if isinstance(chain, tuple):
        chain = ListChain(timesteps=[[*chain]])
    walk = altered(preset_named(preset).walk(steps), sampler, order, chain)
    rule = _ready(denoiser, method)
    heads = {label: head for label, head in denoiser.heads.items() if label == method}
    text = None
    if isinstance(model, str | Path):
        described = describe(model)
        base, licence = base or described.folder.resolve().name, licence or described.licence
        config: Mapping[str, Any] = read_scheduler_config(described.folder)
        model = read_model(described)
        text = TextEncoder.load(described.folder) if described.text else None
        vae = Vae.load(described.folder / "vae").model if described.vae else vae
    elif scheduler is None:
        raise OcmError("save_pipeline: a model in memory needs its `scheduler`, as in `wrap`")
    else:
        config = scheduler.config
    if vae is None and isinstance(denoiser, LatentDenoiser):
        raise OcmError("save_pipeline: a model of latents needs its `vae`, an AutoencoderKL")
    keys, base = schedule_keys(config), base or type(model).__name__
    trained = config.get("num_train_timesteps", 1000)
    return write_pipeline(
        folder,
        model,
        CovarianceScheduler(
            num_train_timesteps=trained,
            **{key: value for key, value in keys.items() if key not in ("kind", "steps")},
            prediction_type=config.get("prediction_type", "epsilon"),
            method=method,
            method_kind=method,
            method_options=rule.model_dump(exclude={"label"}),
            walk=walk.model_dump(),
            **({} if vae is None else NO_LIMITS),
            null_class=denoiser.network.null_label,
        ),
        cast(Mapping[str, CovarianceHead], heads),
        Card(base, base, licence, trained_on, method, steps),
        vae=vae,
        text=text,
    )


def method_of(denoiser: Denoiser, method: str) -> CovarianceMethod:
    """`iddpm` is the variance that the network learned, unless a head of it was trained."""
    own = method == "iddpm" and denoiser.network.learns_variance and method not in denoiser.heads
    return covariance.build(method, **LEARNED_RANGE if own else {})


def _ready(denoiser: Denoiser, method: str) -> CovarianceMethod:
    """The method, with what it needs at hand."""
    rule = method_of(denoiser, method)
    if rule.needs == "head" and method not in denoiser.heads:
        raise OcmError(
            f"method '{method}' has no head yet; train it with api.train_head, or name a method "
            "that needs none, such as beta_tilde"
        )
    if rule.needs == "moments" and denoiser.moments is None:
        raise OcmError(
            f"method '{method}' needs a table of moments, which experiments make (`ocm init`); "
            "name another method"
        )
    return rule


def _likelihood(denoiser: Denoiser, method: CovarianceMethod) -> Likelihood:
    return Likelihood(denoiser, {method.label: method}, _decoder(denoiser), _limits(denoiser))


def _decoder(denoiser: Denoiser) -> Decoder:
    latent = isinstance(denoiser, LatentDenoiser)
    return Decoder(levels=None, variance="method") if latent else Decoder(LEVELS)


def _limits(denoiser: Denoiser) -> Clip:
    return NON_NEGATIVE if isinstance(denoiser, LatentDenoiser) else LIMITS


def _last_sigma(denoiser: Denoiser, walk: WalkParams) -> float | None:
    if walk.last_sigma is None or isinstance(denoiser, LatentDenoiser):
        return None
    return pixel_sigma_limit(walk.last_sigma, LEVELS)


def _noise_at(denoiser: Denoiser, images: Images, rows: range, seed: int, use: Use) -> NoiseAt:
    """Each image's own noise, whatever the batch: the same at every t where chains are chosen."""
    shape, device = tuple(images.shape[1:]), _device(denoiser)
    return lambda t: SampleNoise(
        seed, rows, shape, device, use, time=0 if use is Use.CHAINS else t, draws=1
    )


def _labels_of(denoiser: Denoiser, labels: ImageLabels, rows: range) -> ImageLabels:
    return None if labels is None else labels[rows].to(_device(denoiser))


def _chain(walk: WalkParams, schedule: Schedule, steps: int) -> Chain:
    if isinstance(walk.chain, OptimalChain):
        raise OcmError(
            "chain: an optimal one is found on images; give the timesteps of"
            " api.optimal_chain(denoiser, images, method, steps)"
        )
    return chains.build(walk.chain, schedule, steps)


def _settings(iterations: int, batch_size: int, learning_rate: float, seed: int) -> OptimiserParams:
    try:
        return OptimiserParams(
            iterations=iterations,
            batch_size=batch_size,
            accumulate=1,
            learning_rate=learning_rate,
            decay="cosine",
            weight_decay=0.0,
            ema=iterations / (iterations + 10),  # the average is over the last tenth
            precision="tf32",
            seed=seed,
            checkpoint_every=max(1, iterations // 20),
        )
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise OcmError(f"train_head: {first['loc'][0]}: {first['msg'].lower()}") from None


def _data(denoiser: Denoiser, images: Tensor, labels: ImageLabels) -> Images:
    if labels is not None and len(labels) != len(images):
        raise OcmError(f"{len(labels)} labels for {len(images)} images; give one for each")
    return _latents(images) if isinstance(denoiser, LatentDenoiser) else _pixels(images)


def _latents(latents: Tensor) -> Images:
    if latents.ndim != 4 or not latents.is_floating_point():
        raise OcmError(
            f"latents: {latents.dtype} of shape {tuple(latents.shape)}; expected floating-point "
            "ones of shape (image, channel, height, width), which the model's autoencoder gives, "
            "times its scaling_factor"
        )
    return latents


def _pixels(images: Tensor) -> Images:
    """uint8 or [-1, 1] as [-1, 1]; what else it may be is asked, and not guessed."""
    if images.ndim == 4 and images.dtype == torch.uint8:
        return images.float() / 127.5 - 1.0
    least, most = (float(images.min()), float(images.max())) if images.numel() else (0.0, 0.0)
    if images.ndim != 4 or not images.is_floating_point() or max(-least, most) > 1.0:
        raise OcmError(
            f"images: {images.dtype} of shape {tuple(images.shape)}, from {least:.4g} to "
            f"{most:.4g}; expected uint8 (0 to 255), or float32 between -1 and 1, of shape (image, "
            "channel, height, width)"
        )
    if least >= 0.0:
        raise OcmError(
            f"images: from {least:.4g} to {most:.4g}, which looks like [0, 1]; expected [-1, 1]: "
            "give 2 * images - 1, or uint8 images (0 to 255) as they are"
        )
    return images


def _batches(rows: range, size: int) -> Iterator[range]:
    for first in range(0, len(rows), size):
        yield rows[first : first + size]


def _device(denoiser: Denoiser) -> torch.device:
    return next(denoiser.network.parameters()).device
