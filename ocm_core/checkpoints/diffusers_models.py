"""The model in a folder that diffusers wrote, without running what is inside.

diffusers replaces missing weights by random ones; here a folder whose weights do not fit its
configuration is refused. Half precision is read into float32.
"""

from __future__ import annotations

from typing import Any

import torch
from safetensors import safe_open

from ocm_core.checkpoints.diffusers_folder import ModelDescription
from ocm_core.checkpoints.weight_files import SAVE_AGAIN, WEIGHTS, weight_files
from ocm_core.diffusion import schedule as schedules
from ocm_core.diffusion.denoiser import Denoiser, TimeConvention
from ocm_core.diffusion.score_network import ScoreNetwork
from ocm_core.io.reading import reading
from ocm_core.networks.converted import denoiser_of
from ocm_core.networks.diffusers import model_class, new_model, wrapped
from ocm_core.networks.keys import refuse_larger
from ocm_core.schema.experiment import SchedulerSchedule

TIME = TimeConvention(shift=1)  # theirs begins at 0


def read_model(described: ModelDescription) -> Any:
    """diffusers' own object, in float32."""
    place, kind = described.place, described.kind
    files = weight_files(place)
    for file in files:  # each by name: diffusers does not say which one is damaged
        with reading(file, "a whole safetensors file", SAVE_AGAIN), safe_open(file, "pt") as opened:
            opened.keys()
    with torch.device("meta"):
        empty = new_model(described.config)
    refuse_larger(empty, place)
    variant = files[0].name.removeprefix(WEIGHTS).removesuffix(".safetensors").strip(".") or None
    with reading(place, f"a {kind}", SAVE_AGAIN):
        model, report = model_class(kind).from_pretrained(
            place,
            use_safetensors=True,
            local_files_only=True,
            low_cpu_mem_usage=False,
            output_loading_info=True,
            variant=variant if len(files) == 1 else None,
        )
        problems = [f"{what}: {keys[:3]}" for what, keys in report.items() if keys]
        if problems:
            raise ValueError(f"the weights do not fit config.json: {'; '.join(problems)}")
    return model.float()


def read_network(described: ModelDescription, null_class: int | None = None) -> ScoreNetwork:
    return wrapped(read_model(described), null_class)


def denoiser_of_folder(network: ScoreNetwork, described: ModelDescription) -> Denoiser:
    """With the schedule and the prediction of the folder's scheduler."""
    schedule = schedules.of_params(SchedulerSchedule.model_validate(described.schedule))
    return denoiser_of(network, schedule, TIME, described.prediction)  # type: ignore[arg-type]
