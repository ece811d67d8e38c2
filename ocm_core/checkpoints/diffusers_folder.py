"""A folder that diffusers wrote: `UNet2DModel` and scheduler, read without running what is inside.

Both layouts are read: `unet/` and `scheduler/` as in a pipeline, and all files in one folder as in
the first published models. diffusers replaces missing weights by random ones; here a folder whose
weights do not fit its configuration is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ocm_core.compat import make_torchvision_importable
from ocm_core.errors import OcmError

make_torchvision_importable()  # diffusers imports it

from diffusers.models.unets.unet_2d import UNet2DModel  # noqa: E402
from diffusers.schedulers.scheduling_ddpm import DDPMScheduler  # noqa: E402


def read_unet(folder: Path) -> UNet2DModel:
    place = _part(folder, "unet", "config.json")
    with _refusals(place):
        kind = UNet2DModel.load_config(place).get("_class_name")
        if kind != "UNet2DModel":
            raise ValueError(f"config.json describes a {kind}; expected a UNet2DModel")
        model: UNet2DModel
        model, report = UNet2DModel.from_pretrained(
            place,
            use_safetensors=True,
            local_files_only=True,
            low_cpu_mem_usage=False,
            output_loading_info=True,
        )
        problems = [f"{what}: {keys[:3]}" for what, keys in report.items() if keys]
        if problems:
            raise ValueError(f"the weights do not fit config.json: {'; '.join(problems)}")
    return model


def read_scheduler(folder: Path) -> DDPMScheduler:
    """As a `DDPMScheduler`, whatever its class: only the noise schedule of training is used."""
    place = _part(folder, "scheduler", "scheduler_config.json")
    with _refusals(place):
        config: Mapping[str, Any] = DDPMScheduler.load_config(place)
        if "beta_schedule" not in config:
            raise ValueError(
                f"{config.get('_class_name')} has no beta_schedule; expected the scheduler of a"
                " model with discrete timesteps, such as DDPMScheduler"
            )
        scheduler: DDPMScheduler = DDPMScheduler.from_config(config)
    return scheduler


def _part(folder: Path, name: str, file: str) -> Path:
    for place in (folder / name, folder):
        if (place / file).is_file():
            return place
    raise OcmError(
        f"{folder}: neither {name}/{file} nor {file} is there; expected a folder written by"
        " DDPMPipeline.save_pretrained, or by the model's and the scheduler's"
    )


@contextmanager
def _refusals(place: Path) -> Iterator[None]:
    """Turn what diffusers raises on a bad file into one kind of error that names the folder."""
    try:
        yield
    except (OSError, RuntimeError, ValueError) as error:
        raise OcmError(
            f"{place}: {error}\nSave it again with save_pretrained(folder, safe_serialization=True)"
            " if it is not as diffusers writes it"
        ) from error
