"""How one cell of the grid of samples is drawn: along a chain, or by a solver of diffusers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from typing import Protocol

from torch import Tensor

from ocm_core import covariance
from ocm_core.cells import Cell
from ocm_core.covariance.interface import Clip, CovarianceMethod, check_defined
from ocm_core.diffusion import chains
from ocm_core.diffusion import schedule as schedules
from ocm_core.diffusion.chains import OptimalChains
from ocm_core.diffusion.denoiser import Denoiser, Model
from ocm_core.diffusion.gaussian import pixel_sigma_limit
from ocm_core.diffusion.guidance import guided
from ocm_core.diffusion.transition import Ddim, Ddpm, Kernel
from ocm_core.rng.noise import Noise, SampleNoise, draw_labels
from ocm_core.samplers.ancestral import Sampled, Watcher, ancestral
from ocm_core.schema.experiment import (
    Experiment,
    PresetParams,
    Sampler,
    SamplerParams,
    SolverParams,
    WalkParams,
)
from ocm_core.shapes import Batch, Labels


def kernel_of(walk: WalkParams) -> Kernel:
    return Ddpm() if walk.kind == "ddpm" else Ddim(walk.eta, walk.rederive_eps)


def walk_of(sampler: SamplerParams | PresetParams, evaluations: int) -> WalkParams:
    """Presets are imported when one is used: they are no source of other samplers."""
    if isinstance(sampler, SamplerParams):
        return sampler
    presets = import_module("ocm_core.samplers.presets").PRESETS
    walk: WalkParams = presets[sampler.name].walk(evaluations)
    return walk


class Solver(Protocol):
    """What is asked of `diffusers_solver.py`."""

    def draw(
        self, eps: Callable[[Batch, float], Batch], noise: Noise, evaluations: int
    ) -> Batch: ...

    def check(self, evaluations: int, shape: tuple[int, ...]) -> None: ...


def solver_of(sampler: SolverParams, experiment: Experiment) -> Solver:
    """Imported when it is used: diffusers takes its time, and is no source of other samplers."""
    module = import_module("ocm_core.samplers.diffusers_solver")
    schedule = schedules.of_experiment(experiment)
    solver: Solver = module.DiffusersSolver(
        sampler.scheduler, sampler.options, schedule, experiment.sample.clip.x0
    )
    return solver


@dataclass(frozen=True)
class CellSampler:
    experiment: Experiment
    denoiser: Denoiser
    cell: Cell
    device: str
    optimal: OptimalChains = field(default_factory=dict)

    @property
    def sampler(self) -> Sampler:
        return self.experiment.sample.samplers[self.cell.sampler]

    @property
    def method(self) -> CovarianceMethod:
        method = self.experiment.methods[self.cell.method]
        return covariance.build(method.kind, self.cell.method, **method.options)

    def check(self) -> None:
        """Refuse, before the first step, what this sampler cannot do."""
        if isinstance(self.sampler, SolverParams):
            solver_of(self.sampler, self.experiment).check(self.cell.steps, self.experiment.shape)
        else:
            check_defined(self.method, kernel_of(walk_of(self.sampler, self.cell.steps)))

    def labels(self, indices: range) -> Tensor | None:
        if not self.denoiser.network.conditional:
            return None
        return draw_labels(self.cell.seed, indices, self.experiment.data.classes).to(self.device)

    def draw(self, indices: range, label: Labels, watch: Watcher | None = None) -> Sampled:
        solver = isinstance(self.sampler, SolverParams)
        noise = SampleNoise(
            self.cell.seed,
            indices,
            self.experiment.shape,
            self.device,
            draws=1 if solver else self.cell.steps,  # some solvers draw nothing on their way
        )
        if isinstance(self.sampler, SolverParams):
            return self._solve(self.sampler, noise, label, watch)
        return self._walk(walk_of(self.sampler, self.cell.steps), noise, label, watch)

    def _walk(
        self, walk: WalkParams, noise: SampleNoise, label: Labels, watch: Watcher | None
    ) -> Sampled:
        model, limits = self._model(), self.experiment.sample.clip
        return ancestral(
            model,
            self.method,
            chains.build(
                walk.chain, model.schedule, self.cell.steps, self.cell.method, self.optimal
            ),
            noise,
            kernel=kernel_of(walk),
            order=walk.order,
            covariance_scale=walk.covariance_scale,
            clip=Clip(x0=limits.x0, c_max=limits.covariance),
            last_sigma=self._last_sigma(walk),
            label=label,
            watch=watch,
        )

    def _solve(
        self, sampler: SolverParams, noise: SampleNoise, label: Labels, watch: Watcher | None
    ) -> Sampled:
        model = self._model()

        def eps(x: Batch, t: float) -> Batch:
            if watch is not None:
                watch(t, x)
            return model.predict(x, t, label).eps

        return Sampled(solver_of(sampler, self.experiment).draw(eps, noise, self.cell.steps))

    def _model(self) -> Model:
        params = self.experiment.sample.guidance
        channels = params.guided_channels
        return guided(self.denoiser, self.cell.guidance, channels, params.covariance)

    def _last_sigma(self, walk: WalkParams) -> float | None:
        limit, levels = walk.last_sigma, self.experiment.levels
        if limit is None or levels is None:
            return None
        return self.method.last_sigma(pixel_sigma_limit(limit, levels))
