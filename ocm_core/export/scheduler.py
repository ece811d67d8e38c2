"""A recipe as a scheduler of diffusers, which any of its pipelines can use."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn, cast

import torch
from diffusers.configuration_utils import ConfigMixin, register_to_config
from diffusers.schedulers.scheduling_utils import SchedulerMixin
from diffusers.utils.outputs import BaseOutput
from diffusers.utils.torch_utils import randn_tensor
from torch import Generator, Tensor

from ocm_core import covariance
from ocm_core.checkpoints.diffusers_folder import prediction_of, range_of
from ocm_core.checkpoints.diffusers_models import TIME, schedule_of
from ocm_core.covariance.interface import Clip
from ocm_core.diffusion.denoiser import Denoiser, Prediction
from ocm_core.diffusion.gaussian import sum_dims
from ocm_core.diffusion.guidance import Guidance
from ocm_core.diffusion.schedule import Schedule, q_sample
from ocm_core.diffusion.score_network import ScoreNetwork, TrunkFeatures
from ocm_core.errors import OcmError
from ocm_core.export.heads import FeatureTap
from ocm_core.networks.converted import Conversion
from ocm_core.sampling.recipe import Recipe, StepGaussian, Stepper
from ocm_core.schema.experiment import RecipeParams
from ocm_core.schema.timesteps import ListedTimesteps
from ocm_core.shapes import Batch

Generators = Generator | list[Generator] | None


@dataclass
class GeneratorNoise:
    """Noise from torch's generators, as every pipeline of diffusers takes it."""

    shape: tuple[int, ...]
    generator: Generators
    device: torch.device
    first: Tensor | None = None  # the first normal draw, if it is given

    def normal(self) -> Batch:
        """Return the given draw once, and new ones after it."""
        given, self.first = self.first, None
        return self._draw() if given is None else given.to(self.device)

    def signs(self) -> Batch:
        """Return ±1 with equal probability."""
        return torch.where(self._draw() < 0, -1.0, 1.0)

    def _draw(self) -> Batch:
        drawn: Tensor = randn_tensor(self.shape, self.generator, self.device, torch.float32)
        return drawn


@dataclass
class StepOutput(BaseOutput):
    """The next sample, and the logarithm of its density, one number a sample."""

    prev_sample: Tensor
    log_prob: Tensor | None = None


class CovarianceScheduler(SchedulerMixin, ConfigMixin):  # type: ignore[misc]
    """Takes steps by a recipe: `recipe` has the parameters of an experiment's sampler."""

    order = 1  # evaluations of the network per step

    @register_to_config  # type: ignore[untyped-decorator]
    def __init__(
        self,
        num_train_timesteps: int = 1000,
        beta_schedule: str = "linear",
        beta_start: float = 1e-4,
        beta_end: float = 0.02,
        trained_betas: list[float] | None = None,
        rescale_betas_zero_snr: bool = False,
        prediction_type: str = "epsilon",
        use_flow_sigmas: bool = False,
        flow_shift: float = 1.0,
        sigma_min: float | None = None,
        sigma_max: float | None = None,
        sigma_data: float | None = None,
        sigma_schedule: str = "karras",
        rho: float | None = 7.0,
        method: str = "ocm",
        method_kind: str = "ocm",
        method_options: dict[str, Any] | None = None,
        recipe: dict[str, Any] | None = None,
        clip_x0: float | None = 1.0,
        clip_covariance: float | None = 1.0,
        levels: int | None = 256,
        guided_channels: int | None = None,
        guided_covariance: str = "guided",
        null_class: int | None = None,
    ) -> None:
        trained, data_range = schedule_of(self.config), range_of(self.config)
        self.conversion = Conversion(trained, TIME, prediction_of(self.config), data_range)
        self.schedule: Schedule = trained.for_range(data_range)
        self.params = RecipeParams.model_validate(recipe)
        self._visit(range(self.schedule.steps, 0, -1))
        self._given = Denoiser(cast(ScoreNetwork, None), self.schedule, TIME, forward=_refuse)
        self._tap: FeatureTap | None = None
        self._stepper: Stepper | None = None

    def recipe(self, steps: int, guidance: float = 1.0) -> Recipe:
        """Return the recipe for a number of steps."""
        rule, config = self.params.timesteps, self.config
        if isinstance(rule, ListedTimesteps) and steps not in map(len, rule.values):
            numbers = sorted(map(len, rule.values))
            raise OcmError(f"num_inference_steps = {steps}: this scheduler has those of {numbers}")
        options = config["method_options"] or {}
        method = covariance.build(config["method_kind"], config["method"], **options)
        given: Any = {
            "clip": Clip(x0=config["clip_x0"], c_max=config["clip_covariance"]),
            "levels": config["levels"],
            "guidance": Guidance(guidance, config["guided_channels"], config["guided_covariance"]),
        }
        return Recipe.from_params(self.params, self.schedule, steps, method, **given)

    def attach(self, denoiser: Denoiser, model: Any = None) -> None:
        """Take spectra and heads of a denoiser; heads read features of `model`'s own pass."""
        self._given = replace(self._given, heads=denoiser.heads, spectra=denoiser.spectra)
        self._tap = None if model is None else FeatureTap(model)

    def set_timesteps(self, num_inference_steps: int, device: Any = None) -> None:
        """Prepare for one batch of samples; `timesteps` are the numbers that the network is told.

        Those of a schedule of betas begin at 0. Samples of a flow lie on its path, others have unit
        variance at the end.
        """
        recipe = self.recipe(num_inference_steps)
        self._stepper = Stepper(recipe, self.schedule)
        self._visit(recipe.timesteps[::-1], device)

    def set_begin_index(self, begin_index: int = 0) -> None:
        """Begin at the first timestep, the only place."""
        if begin_index:
            raise OcmError(f"set_begin_index: {begin_index}; a covariance scheduler begins at 0")

    def _visit(self, times: Sequence[int], device: Any = None) -> None:
        self._times = times
        at = torch.tensor(times, device=device)
        self.conversion.to(device or "cpu")
        told = self.conversion.network_time(at)
        self.timesteps = told if self.conversion.told_levels else told.long()
        one = torch.ones(1, 1, device=device)
        self.init_noise_sigma = float(self.conversion.on_path(one, at[:1]))

    def _index(self, timestep: float | Tensor) -> int:
        """Return t of a number that the network is told."""
        if not self.conversion.told_levels:
            return int(timestep) + 1
        return self._times[int((self.timesteps - float(timestep)).abs().argmin())]

    def scale_model_input(self, sample: Tensor, timestep: Any = None) -> Tensor:
        """Return what the network takes: of EDM, data in units of their deviation."""
        if self.conversion.data_range == 1.0:
            return sample
        return self.conversion.scaled(sample, self._at(self._index(timestep), sample))

    def step(
        self,
        model_output: Tensor,
        timestep: float | Tensor,
        sample: Tensor,
        generator: Generators = None,
        variance_noise: Tensor | None = None,
        return_dict: bool = True,
        return_log_prob: bool = False,
        prev_sample: Tensor | None = None,
    ) -> StepOutput | tuple[Tensor, ...]:
        """Return the sample at the next timestep, and on request the logarithm of its density.

        `variance_noise` replaces a draw. A given `prev_sample` is only weighed: steps of order 1 in
        any order, with gradients in `model_output`. The last step, and one without variance, are
        no Gaussians: their log_prob is None.
        """
        if self._stepper is None:
            raise OcmError("step: the timesteps are not set; call set_timesteps first")
        t, stepper = self._index(timestep), self._stepper
        if prev_sample is not None:
            stepper = Stepper(stepper.recipe.from_timestep(t), self.schedule)
        noise = GeneratorNoise(tuple(sample.shape), generator, sample.device, variance_noise)
        with torch.set_grad_enabled(prev_sample is not None and torch.is_grad_enabled()):
            x = self.conversion.off_path(sample.float(), self._at(t, sample))
            gaussian = stepper.gaussian(self._prediction(model_output.float(), t, x), t, noise)
            at = self._at(gaussian.s, sample)
            if prev_sample is None:
                drawn = gaussian.draw(noise)
                prev_sample = self.conversion.on_path(drawn, at).to(sample.dtype)
            else:
                drawn = self.conversion.off_path(prev_sample.float(), at)
            found = self._log_prob(gaussian, drawn, at) if return_log_prob else None
        if return_dict:
            return StepOutput(prev_sample, found)
        return (prev_sample, found) if return_log_prob else (prev_sample,)  # type: ignore[return-value]

    def _log_prob(self, gaussian: StepGaussian, x: Tensor, at: Tensor) -> Tensor | None:
        """log N(x; μ, Σ) of x on its path: the path scales every dimension alike."""
        covariance = gaussian.covariance
        if covariance is None or not bool((covariance.diagonal(x) > 0).all()):
            return None
        scale = self.conversion.off_path(torch.ones_like(x), at)
        return covariance.log_density(x - gaussian.mean) + sum_dims(scale.log())

    @staticmethod
    def _at(t: int, x: Tensor) -> Tensor:
        return torch.full((len(x),), t, device=x.device)

    def _prediction(self, output: Tensor, t: int, x: Tensor) -> Prediction:
        times = self._at(t, x)
        learns_variance = output.shape[1] == 2 * x.shape[1]
        predicted, learned = output.chunk(2, dim=1) if learns_variance else (output, None)
        predicted = self.conversion.eps(self.conversion.scaled(x, times), predicted, times)
        features = TrunkFeatures(x, x) if self._tap is None else self._tap.take(len(x))
        return Prediction(x, times, predicted, learned, self._given, None, features)

    def add_noise(self, original_samples: Tensor, noise: Tensor, timesteps: Tensor) -> Tensor:
        """Return x_t = √ᾱ_t x_0 + √b_t ε, of a flow (1 - s) x_0 + s ε."""
        times = torch.tensor([self._index(t) for t in timesteps.cpu()], device=noise.device)
        marginal = self.schedule.marginal_at(times, original_samples)
        return self.conversion.on_path(q_sample(original_samples, noise, *marginal), times)

    def __len__(self) -> int:
        return int(self.config["num_train_timesteps"])


def _refuse(*_: object) -> NoReturn:
    raise OcmError(
        "this covariance method evaluates the network itself, which a scheduler cannot; sample "
        "with CovariancePipeline, or choose a method with a head or a fixed variance"
    )
