"""Draw maps of √diag Cov[x_0 | x_t]: what heads predict, beside estimates from M probes."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import torch

from ocm_core.covariance import build_all
from ocm_core.covariance.interface import PosteriorMethod
from ocm_core.covariance.rademacher import probed
from ocm_core.diffusion.denoiser import Denoiser
from ocm_core.diffusion.schedule import q_sample
from ocm_core.rng.noise import NoiseFor, SampleNoise
from ocm_core.schema.block import Choices, Count, Seed
from ocm_core.stages import Artifact, Job, Params, Stage, Work
from ocm_core.stages._networks import evaluating, methods_with_heads
from ocm_core.stages.encode import Encoded, read_rows
from ocm_core.stages.heads import load_denoiser
from ocm_core.store.reader import store_path

if TYPE_CHECKING:  # slow
    import xarray as xr


class PosteriorStdParams(Params):
    """Which timesteps, how many images, and how many probes stand beside the heads."""

    times: Choices[Count] = [1, 5, 20, 50, 100, 200, 400, 800]
    images: Count = 8
    probes: Choices[Count] = [1, 10, 100, 1000]
    seed: Seed = 7


STAGE: Stage[PosteriorStdParams] = Stage(
    __name__,
    "evaluate",
    params=PosteriorStdParams,
    **evaluating(methods=methods_with_heads),
    work=lambda e, part: Work(
        len((s := STAGE.settings(e)).times) * s.images * (2 + 2 * sum(s.probes))
    ),
)


class PosteriorStdMaps(Artifact):
    """An array over (score, t, source, image, …); sources are x_t, methods and probes."""

    def save(self, maps: xr.DataArray) -> None:
        from zarr.errors import UnstableSpecificationWarning

        with warnings.catch_warnings():
            # names of sources are text, for which Zarr 3 has a stable type only outside xarray
            warnings.simplefilter("ignore", UnstableSpecificationWarning)
            dataset = maps.to_dataset(name="std")
            dataset.to_zarr(self.folder / "maps.zarr", mode="w", consolidated=False, zarr_format=3)

    def load(self) -> xr.DataArray:
        import xarray as xr

        maps: xr.DataArray = xr.open_zarr(self.folder / "maps.zarr", consolidated=False)["std"]
        return maps.load()


def run(job: Job) -> None:
    """Draw the maps of every score at every timestep."""
    import xarray as xr

    experiment, settings = job.experiment, STAGE.settings(job.experiment)
    known = build_all(experiment.methods).items()
    methods = {label: m for label, m in known if isinstance(m, PosteriorMethod)}
    parts, maps = job.all(Encoded).values(), []
    is_there = any(store_path(part.folder, "test").exists() for part in parts)
    split = "test" if is_there else "train"  # where there is no other
    for score in experiment.network.scores:
        denoiser = load_denoiser(job, score, methods)
        times = job.progress(settings.times, f"deviations, {score} score")
        maps.append(np.stack([_at(job, split, denoiser, methods, t) for t in times]))
    sources = ["x_t", *methods, *(f"probes_{count}" for count in settings.probes)]
    axes = [f"axis{i}" for i in range(len(experiment.shape))]
    coords = {"score": list(experiment.network.scores), "t": settings.times, "source": sources}
    dims = ["score", "t", "source", "image", *axes]
    array = xr.DataArray(np.stack(maps), coords, dims, attrs={"split": split})
    PosteriorStdMaps(job.folder).save(array)


def _at(
    job: Job, split: str, denoiser: Denoiser, methods: Mapping[str, PosteriorMethod], t: int
) -> np.ndarray:
    """Return x_t, then √C of every method and number of probes; negative C is shown as 0."""
    settings = STAGE.settings(job.experiment)
    rows = range(settings.images)
    x0, label = read_rows(job, split, rows, denoiser.network.conditional)
    shape = job.experiment.shape
    noise = SampleNoise(settings.seed, rows, shape, job.device, NoiseFor.DEVIATION, t)
    alpha_bar, b = denoiser.schedule.marginal(t)
    x = q_sample(x0, noise.normal(), alpha_bar, b)
    with torch.no_grad():
        seen = denoiser.predict(x, t, label)
        c = [method.by_entry(seen) for method in methods.values()]
        c += [probed(seen, noise, count) for count in settings.probes]
    deviations = [(b / alpha_bar * value).clamp(min=0).sqrt() for value in c]
    return np.asarray(torch.stack([x, *deviations]).cpu().numpy())
