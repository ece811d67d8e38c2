"""How one cell of the grid of samples is drawn: chain, kernel, limits, noise and labels."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from ocm_core import covariance
from ocm_core.cells import Cell
from ocm_core.covariance.interface import Clip, CovarianceMethod
from ocm_core.diffusion import chains
from ocm_core.diffusion.denoiser import Denoiser, Model
from ocm_core.diffusion.gaussian import pixel_sigma_limit
from ocm_core.diffusion.guidance import GuidedDenoiser
from ocm_core.diffusion.transition import Ddim, Ddpm, Kernel
from ocm_core.errors import OcmError
from ocm_core.rng.noise import SampleNoise, draw_labels
from ocm_core.samplers.ancestral import Sampled, Watcher, ancestral
from ocm_core.schema.experiment import Experiment, SamplerParams
from ocm_core.shapes import Labels


@dataclass(frozen=True)
class CellSampler:
    experiment: Experiment
    denoiser: Denoiser
    cell: Cell
    device: str

    @property
    def sampler(self) -> SamplerParams:
        return self.experiment.sample.samplers[self.cell.sampler]

    @property
    def method(self) -> CovarianceMethod:
        method = self.experiment.methods[self.cell.method]
        return covariance.build(method.kind, self.cell.method, **method.options)

    @property
    def kernel(self) -> Kernel:
        if self.sampler.kind == "ddpm":
            return Ddpm()
        return Ddim(self.sampler.eta, self.sampler.rederive_eps)

    def labels(self, indices: range) -> Tensor | None:
        if not self.denoiser.network.conditional:
            return None
        return draw_labels(self.cell.seed, indices, self.experiment.data.classes).to(self.device)

    def draw(self, indices: range, label: Labels, watch: Watcher | None = None) -> Sampled:
        experiment, limits = self.experiment, self.experiment.sample.clip
        return ancestral(
            self._model(),
            self.method,
            chains.build(self.sampler.chain, experiment.schedule.steps, self.cell.steps),
            SampleNoise(self.cell.seed, indices, experiment.shape, self.device),
            kernel=self.kernel,
            clip=Clip(x0=limits.x0, c_max=limits.covariance),
            last_sigma=self._last_sigma(),
            label=label,
            watch=watch,
        )

    def _model(self) -> Model:
        scale, guidance = self.cell.guidance, self.experiment.sample.guidance
        if scale == 1.0:
            return self.denoiser
        null = self.denoiser.network.null_label
        if null is None:
            raise OcmError(f"guidance {scale} needs a network with a null class; use 1.0")
        channels = 3 if guidance.channels == "first_three" else None
        return GuidedDenoiser(self.denoiser, scale, null, channels, guidance.covariance)

    def _last_sigma(self) -> float | None:
        limit, levels = self.sampler.last_sigma, self.experiment.levels
        return None if limit is None or levels is None else pixel_sigma_limit(limit, levels)
