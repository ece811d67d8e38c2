"""A recipe as a scheduler of diffusers, which any of its pipelines can use."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn, cast

import torch
from diffusers.configuration_utils import ConfigMixin, register_to_config
from diffusers.schedulers.scheduling_utils import SchedulerMixin, SchedulerOutput
from diffusers.utils.torch_utils import randn_tensor
from torch import Generator, Tensor, nn

from ocm_core import covariance
from ocm_core.checkpoints.diffusers_folder import schedule_keys
from ocm_core.checkpoints.diffusers_models import TIME
from ocm_core.covariance.interface import Clip
from ocm_core.diffusion import schedule as schedules
from ocm_core.diffusion.denoiser import Denoiser, Prediction
from ocm_core.diffusion.guidance import Guidance
from ocm_core.diffusion.schedule import Schedule, q_sample
from ocm_core.diffusion.score_network import ScoreNetwork, TrunkFeatures
from ocm_core.errors import OcmError
from ocm_core.export.heads import FeatureTap
from ocm_core.networks.converted import TO_EPS
from ocm_core.sampling.recipe import Recipe, Stepper
from ocm_core.schema.experiment import RecipeParams, SchedulerSchedule
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


class CovarianceScheduler(SchedulerMixin, ConfigMixin):  # type: ignore[misc]
    """Takes steps by a recipe: `recipe` has the parameters of an experiment's sampler."""

    order = 1  # evaluations of the network per step
    init_noise_sigma = 1.0

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
        betas = SchedulerSchedule.model_validate(schedule_keys(self.config))
        self.schedule: Schedule = schedules.of_params(betas)
        self.params = RecipeParams.model_validate(recipe)
        self.timesteps = torch.arange(num_train_timesteps - 1, -1, -1)
        self._heads: Mapping[str, nn.Module] = {}
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

    def attach(self, model: Any, heads: Mapping[str, nn.Module]) -> None:
        """Let `heads` read the features of `model` from its own forward pass."""
        self._tap, self._heads = FeatureTap(model), heads

    def set_timesteps(self, num_inference_steps: int, device: Any = None) -> None:
        """Prepare for one batch of samples: the network's timesteps, which begin at 0."""
        recipe = self.recipe(num_inference_steps)
        self._stepper = Stepper(recipe, self.schedule)
        self.timesteps = torch.tensor([t - 1 for t in reversed(recipe.timesteps)], device=device)

    def scale_model_input(self, sample: Tensor, timestep: Any = None) -> Tensor:
        """Return the sample: the network takes x_t as it is."""
        return sample

    def step(
        self,
        model_output: Tensor,
        timestep: int | Tensor,
        sample: Tensor,
        generator: Generators = None,
        variance_noise: Tensor | None = None,
        return_dict: bool = True,
    ) -> SchedulerOutput | tuple[Tensor]:
        """Return the sample at the next timestep; `variance_noise` replaces a draw."""
        if self._stepper is None:
            raise OcmError("step: the timesteps are not set; call set_timesteps first")
        t = int(timestep) + 1
        noise = GeneratorNoise(tuple(sample.shape), generator, sample.device, variance_noise)
        with torch.no_grad():
            prediction = self._prediction(model_output.float(), t, sample.float())
            x = self._stepper.step(prediction, t, noise).to(sample.dtype)
        return SchedulerOutput(prev_sample=x) if return_dict else (x,)

    def _prediction(self, output: Tensor, t: int, x: Tensor) -> Prediction:
        times = torch.full((len(x),), t, device=x.device)
        learns_variance = output.shape[1] == 2 * x.shape[1]
        predicted, learned = output.chunk(2, dim=1) if learns_variance else (output, None)
        kind = self.config["prediction_type"]
        if kind != "epsilon":
            predicted = TO_EPS[kind](x, predicted, *self.schedule.marginal_at(times, x))
        features = TrunkFeatures(x, x) if self._tap is None else self._tap.take(len(x))
        absent = cast(ScoreNetwork, None)  # the pipeline has it
        denoiser = Denoiser(absent, self.schedule, TIME, self._heads, forward=_refuse)
        return Prediction(x, times, predicted, learned, denoiser, None, features)

    def add_noise(self, original_samples: Tensor, noise: Tensor, timesteps: Tensor) -> Tensor:
        """Return x_t = √ᾱ_t x_0 + √b_t ε."""
        marginal = self.schedule.marginal_at(timesteps + 1, original_samples)
        return q_sample(original_samples, noise, *marginal)

    def __len__(self) -> int:
        return int(self.config["num_train_timesteps"])


def _refuse(*_: object) -> NoReturn:
    raise OcmError(
        "this covariance method evaluates the network itself, which a scheduler cannot; sample "
        "with CovariancePipeline, or choose a method with a head or a fixed variance"
    )
