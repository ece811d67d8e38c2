"""How a pipeline samples, as a scheduler's configuration: schedule, method, walk and limits."""

from __future__ import annotations

from typing import Any

import torch
from pydantic import ValidationError

from ocm_core import covariance
from ocm_core.checkpoints.diffusers_folder import schedule_keys
from ocm_core.compat import make_torchvision_importable
from ocm_core.covariance.interface import Clip, CovarianceMethod
from ocm_core.diffusion import chains
from ocm_core.diffusion import schedule as schedules
from ocm_core.diffusion.chains import Chain
from ocm_core.diffusion.gaussian import pixel_sigma_limit
from ocm_core.diffusion.schedule import Schedule
from ocm_core.errors import OcmError
from ocm_core.schema.chains import ListChain
from ocm_core.schema.experiment import SchedulerSchedule, WalkParams

make_torchvision_importable()  # diffusers imports it

from diffusers.configuration_utils import ConfigMixin, register_to_config  # noqa: E402
from diffusers.schedulers.scheduling_utils import SchedulerMixin  # noqa: E402


class CovarianceScheduler(SchedulerMixin, ConfigMixin):  # type: ignore[misc]
    """`walk` is that of an experiment's sampler: kernel, η, order, chain, last_sigma, scale."""

    order = 1

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
        walk: dict[str, Any] | None = None,
        clip_x0: float | None = 1.0,
        clip_covariance: float | None = 1.0,
        levels: int | None = 256,
        guided_channels: int | None = None,
        guided_covariance: str = "guided",
        null_class: int | None = None,
    ) -> None:
        self.schedule: Schedule = schedules.of_params(
            SchedulerSchedule.model_validate(schedule_keys(self.config))
        )
        try:
            self.walk = WalkParams.model_validate(walk)
        except ValidationError as error:
            raise OcmError(
                f"scheduler: walk: {error.errors(include_url=False)[0]['msg']}"
            ) from None
        self.timesteps = torch.arange(num_train_timesteps - 1, -1, -1)

    def set_timesteps(self, num_inference_steps: int, device: Any = None) -> None:
        """Those of the network, which begin at 0, from the noisiest on."""
        chain = self.chain(num_inference_steps)
        self.timesteps = torch.tensor([t - 1 for t in reversed(chain)], device=device)

    def chain(self, steps: int) -> Chain:
        own = self.walk.chain
        lengths = [len(t) for t in own.timesteps] if isinstance(own, ListChain) else [steps]
        if steps not in lengths:
            raise OcmError(
                f"num_inference_steps = {steps}: this pipeline has chains of "
                f"{', '.join(map(str, sorted(lengths)))} steps"
            )
        return chains.build(own, self.schedule, steps)

    @property
    def covariance_method(self) -> CovarianceMethod:
        options = self.config["method_options"] or {}
        return covariance.build(self.config["method_kind"], self.config["method"], **options)

    @property
    def clip(self) -> Clip:
        return Clip(x0=self.config["clip_x0"], c_max=self.config["clip_covariance"])

    @property
    def last_sigma(self) -> float | None:
        limit, levels = self.walk.last_sigma, self.config["levels"]
        if limit is None or levels is None:
            return None
        return self.covariance_method.last_sigma(pixel_sigma_limit(limit, levels))
