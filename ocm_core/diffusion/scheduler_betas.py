"""The betas of a scheduler of diffusers, by that library itself."""

from __future__ import annotations

import torch
from diffusers.schedulers.scheduling_ddpm import DDPMScheduler
from jaxtyping import Float64
from numpy import ndarray

from ocm_core.io.reading import reading
from ocm_core.schema.experiment import SchedulerSchedule

_CHECK = "check the scheduler's configuration"


def betas(params: SchedulerSchedule) -> Float64[ndarray, " t"]:
    """β_1 … β_T; without the last timestep where that is pure noise."""
    arguments = params.model_dump(exclude={"kind", "steps"})
    made_on = torch.device("cpu")  # whatever the default: networks are counted on `meta`
    with reading("schedule", "a schedule that diffusers can make", _CHECK), made_on:
        made = DDPMScheduler(
            num_train_timesteps=params.steps + params.rescale_betas_zero_snr, **arguments
        )
        found: Float64[ndarray, " t"] = made.betas.double().numpy()[: params.steps]
        if len(found) != params.steps:
            raise ValueError(f"{len(found)} betas for {params.steps} timesteps")
    return found
