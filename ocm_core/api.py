"""The short way for a model of one's own: load it, train a head, sample. README.md shows it.

One path for images in [-1, 1]: even chains and limits as published, and the heads too unless they
are asked to be relative. Other chains, guidance and latents are choices of the parts that are put
together here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from jaxtyping import Int
from pydantic import ValidationError
from torch import Tensor

from ocm_core import covariance
from ocm_core.checkpoints.diffusers_folder import read_scheduler, read_unet
from ocm_core.checkpoints.head_file import load_heads, save_heads
from ocm_core.covariance.interface import Clip
from ocm_core.covariance.learned import CovarianceHead, LearnedMethod, RegressionMethod
from ocm_core.diffusion import chains
from ocm_core.diffusion.denoiser import Denoiser, TimeConvention
from ocm_core.diffusion.gaussian import Decoder, pixel_sigma_limit
from ocm_core.diffusion.schedule import Schedule
from ocm_core.diffusion.transition import Ddim, Ddpm, Kernel
from ocm_core.errors import OcmError, unknown
from ocm_core.image_grid import save_grid
from ocm_core.networks.diffusers_unet import DiffusersUNet
from ocm_core.progress import Progress
from ocm_core.rng.noise import SampleNoise
from ocm_core.rng.streams import seed_torch
from ocm_core.samplers.ancestral import Watcher, ancestral
from ocm_core.schema.experiment import OptimiserParams
from ocm_core.shapes import Images
from ocm_core.training.baselines import DRAWS, gaussian_baseline, or_gaussian, target_means
from ocm_core.training.batches import InMemory
from ocm_core.training.head_fitting import HeadFitting
from ocm_core.training.loop import fit

if TYPE_CHECKING:
    from diffusers.configuration_utils import ConfigMixin
    from diffusers.models.unets.unet_2d import UNet2DModel

__all__ = ["load", "load_heads", "sample", "save_grid", "save_heads", "train_head", "wrap"]

ImageLabels = Int[Tensor, " image"] | None
KERNELS: dict[str, Kernel] = {"ddpm": Ddpm(), "ddim": Ddim()}


def load(folder: Path, device: str = "cpu") -> Denoiser:
    """A folder that diffusers wrote: a `UNet2DModel` and its scheduler."""
    denoiser = wrap(read_unet(folder), read_scheduler(folder))
    denoiser.network.to(device)
    return denoiser


def wrap(model: UNet2DModel, scheduler: ConfigMixin) -> Denoiser:
    """The model, frozen from here on, with the noise schedule that it was trained with."""
    network = DiffusersUNet(model).eval().requires_grad_(False)
    return Denoiser(network, _schedule(scheduler), TimeConvention(shift=1))  # theirs begins at 0


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
    folder: Path | None = None,
    progress: Progress[int] = iter,
) -> Denoiser:
    """The denoiser with a trained head of `method`; in `folder`, a run that was killed resumes.

    A relative head predicts c in proportion to its mean over these images at each t, which takes as
    long as some sixty to a hundred iterations to tell, and stays positive: better with few steps.
    Where that mean is not positive, as an imperfect score has it at large t, the c of a Gaussian
    with the images' variance stands in for it.
    """
    _check_images(images, labels)
    rule = covariance.build(method)
    if not isinstance(rule, LearnedMethod):
        raise OcmError(f"method '{method}' has no head to train; sample with it as it is")
    if relative and not isinstance(rule, RegressionMethod):
        raise OcmError(f"method '{method}' does not predict c, and cannot be relative to its mean")
    settings = _settings(iterations, batch_size, learning_rate, seed)
    with torch.random.fork_rng(), TemporaryDirectory() as scratch:
        seed_torch(seed)
        net, device = denoiser.network.make_head(kind), str(_device(denoiser))
        bare = HeadFitting(denoiser, {method: rule}, InMemory(images, labels), Decoder(levels=256))
        if relative:
            gaussian = gaussian_baseline(denoiser.schedule, float(images.var(0).mean()))
            means = target_means(bare, seed, min(batch_size, DRAWS), device)[method]
            head = CovarianceHead(net, or_gaussian(means, gaussian), link="tapered", unit="one")
        else:
            head = CovarianceHead(net)
        trained = replace(denoiser, heads={**denoiser.heads, method: head.to(device)})
        objective = replace(bare, denoiser=trained)
        place = folder or Path(scratch)
        state = fit(objective, settings, place, device=device, progress=progress)
        state.use_average()
        state.path(place).unlink(missing_ok=True)
    head.eval().requires_grad_(False)
    return trained


def sample(
    denoiser: Denoiser,
    shape: tuple[int, int, int],
    method: str = "ocm",
    *,
    steps: int = 10,
    count: int = 16,
    first: int = 0,
    seed: int = 0,
    sampler: Literal["ddpm", "ddim"] = "ddpm",
    labels: ImageLabels = None,
    batch_size: int = 64,
    watch: Watcher | None = None,
) -> Images:
    """Images of `shape` (channel, height, width); the i-th of a seed has its own noise, always.

    `first` is the i to begin with; `watch` is called at every step of every batch.
    """
    if sampler not in KERNELS:
        raise OcmError(f"sampler: {unknown(sampler, KERNELS)}")
    if labels is not None and len(labels) != count:
        raise OcmError(f"{len(labels)} labels for count = {count} images; give one for each")
    rule, device = covariance.build(method), _device(denoiser)
    chain = chains.build("even", denoiser.schedule.steps, steps)
    drawn = [
        ancestral(
            denoiser,
            rule,
            chain,
            SampleNoise(seed, rows, tuple(shape), device),
            kernel=KERNELS[sampler],
            clip=Clip(x0=1.0, c_max=1.0),
            last_sigma=pixel_sigma_limit(1.0),
            label=None if labels is None else labels[rows.start - first :][: len(rows)].to(device),
            watch=watch,
        ).x
        for rows in _batches(range(first, first + count), batch_size)
    ]
    return torch.cat(drawn)


def _schedule(scheduler: ConfigMixin) -> Schedule:
    betas, predicted = getattr(scheduler, "betas", None), scheduler.config.get("prediction_type")
    if betas is None:
        raise OcmError(f"{type(scheduler).__name__} has no betas; expected one like DDPMScheduler")
    if predicted != "epsilon":
        raise OcmError(
            f"prediction_type={predicted!r}: only a model that predicts the noise ('epsilon') can"
            " be used"
        )
    return Schedule(np.append(0.0, betas.double().numpy()))


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
            precision="float32",
            seed=seed,
            checkpoint_every=max(1, iterations // 20),
        )
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise OcmError(f"train_head: {first['loc'][0]}: {first['msg'].lower()}") from None


def _check_images(images: Images, labels: ImageLabels) -> None:
    if images.ndim != 4 or not images.is_floating_point() or images.abs().max() > 1.0:
        raise OcmError(
            f"images: {images.dtype} of shape {tuple(images.shape)}, up to {images.max():.4g};"
            " expected float32, (image, channel, height, width), between -1 and 1"
        )
    if labels is not None and len(labels) != len(images):
        raise OcmError(f"{len(labels)} labels for {len(images)} images; give one for each")


def _batches(rows: range, size: int) -> Iterator[range]:
    for first in range(0, len(rows), size):
        yield rows[first : first + size]


def _device(denoiser: Denoiser) -> torch.device:
    return next(denoiser.network.parameters()).device
