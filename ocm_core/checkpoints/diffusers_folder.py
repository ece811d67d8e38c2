"""A folder that diffusers wrote, described: what model is in it, and how it was trained.

Both layouts are read: parts in folders of their own (`unet/`, `scheduler/`, …) as in a pipeline,
and all files in one folder as in the first published models. Nothing is loaded: configurations are
JSON, and the heads of safetensors files say how many values there are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from safetensors import safe_open

from ocm_core.checkpoints.text_folder import TextDescription, describe_text
from ocm_core.checkpoints.weight_files import CONFIG, SAVE_AGAIN, digest_of, weight_files
from ocm_core.errors import OcmError
from ocm_core.io.reading import read_json_object, reading
from ocm_core.networks.config import check_diffusers_sizes
from ocm_core.schema.block import MOST_STEPS
from ocm_core.schema.experiment import SchedulerSchedule

SCHEDULER_CONFIG = "scheduler_config.json"
PARTS = ("unet", "transformer", "model", "")  # where the model may be
PREDICTIONS = ("epsilon", "v_prediction", "sample")
TEXT_MODEL = "UNet2DConditionModel"
CLASSES_KEY = {
    "UNet2DModel": "num_class_embeds",
    "DiTTransformer2DModel": "num_embeds_ada_norm",
    TEXT_MODEL: "num_class_embeds",
}


@dataclass(frozen=True)
class ModelDescription:
    """What a folder holds, in the words of an experiment's parameters."""

    folder: Path
    place: Path  # the part of the folder that holds the model
    kind: str  # its class in diffusers
    config: Mapping[str, Any]
    shape: tuple[int, int, int] | None  # channels, rows, columns; None: any size
    classes: int | None
    null_class: int | None
    learns_variance: bool
    prediction: str
    schedule: Mapping[str, Any]  # `schedule` of an experiment
    zero_snr: bool  # the last timestep is pure noise, and outside every chain
    clips: bool  # whether its scheduler limits x̂_0 (to [-1, 1], or more)
    parameters: int
    vae: Mapping[str, Any] | None  # the autoencoder's configuration
    text: TextDescription | None  # the text encoder and tokenizer of a model that takes text
    licence: str | None  # as the model card has it

    @property
    def files(self) -> list[Path]:
        """What the digest is of."""
        return [self.place / CONFIG, *weight_files(self.place)]

    @property
    def scheduler_file(self) -> Path:
        return _scheduler_file(self.folder)

    @property
    def digest(self) -> str:
        return digest_of(self.place, self.files)


def describe(folder: str | Path) -> ModelDescription:
    """Refuses what cannot be used: other kinds of model, of prediction, and of schedule."""
    folder = existing_folder(folder)
    place = _model_place(folder)
    config = read_json_object(place / CONFIG, SAVE_AGAIN)
    kind = str(config.get("_class_name"))
    if kind not in CLASSES_KEY:
        raise OcmError(
            f"{place / CONFIG}: describes a {kind}; expected one of {', '.join(CLASSES_KEY)}"
        )
    check_diffusers_sizes(config, place / CONFIG)
    scheduler = read_scheduler_config(folder)
    return ModelDescription(
        folder=folder,
        place=place,
        kind=kind,
        config=config,
        shape=_shape(config, place / CONFIG),
        classes=config.get(CLASSES_KEY[kind]),
        null_class=config.get(CLASSES_KEY[kind]) if kind == "DiTTransformer2DModel" else None,
        learns_variance=_learns_variance(config, scheduler, place / CONFIG),
        prediction=scheduler.get("prediction_type", "epsilon"),
        schedule=schedule_keys(scheduler),
        zero_snr=bool(scheduler.get("rescale_betas_zero_snr")),
        clips=bool(scheduler.get("clip_sample", True)),
        parameters=sum(_values(file) for file in weight_files(place)),
        vae=_part_config(folder, "vae"),
        text=describe_text(folder, config) if kind == TEXT_MODEL else None,
        licence=_licence(folder),
    )


def existing_folder(folder: str | Path) -> Path:
    path = Path(folder)
    if path.is_dir():
        return path
    if path.is_file():
        raise OcmError(f"{path}: a file; expected the folder that save_pretrained wrote")
    if not path.is_absolute() and len(path.parts) == 2:
        name = path.as_posix()
        raise OcmError(
            f"{name}: no such folder; if it is a model on the Hugging Face hub, download it first: "
            f"`hf download {name} --local-dir {path.name}`, then give the folder {path.name}"
        )
    raise OcmError(f"{path}: no such folder; expected one that save_pretrained wrote")


def read_scheduler_config(folder: Path) -> dict[str, Any]:
    """Whatever its class: only the noise schedule of training and the prediction are used."""
    file = _scheduler_file(folder)
    config = read_json_object(file, SAVE_AGAIN)
    check_scheduler(config, file)
    return config


def _scheduler_file(folder: Path) -> Path:
    for place in (folder / "scheduler", folder):
        if (place / SCHEDULER_CONFIG).is_file():
            return place / SCHEDULER_CONFIG
    raise OcmError(
        f"{folder}: neither scheduler/{SCHEDULER_CONFIG} nor {SCHEDULER_CONFIG} is there; "
        "expected a folder written by the pipeline's save_pretrained, or by the model's and "
        "the scheduler's"
    )


def check_scheduler(config: Mapping[str, Any], where: object) -> None:
    name, predicted = config.get("_class_name"), config.get("prediction_type", "epsilon")
    if "FlowMatch" in str(name) or config.get("use_flow_sigmas"):
        raise OcmError(
            f"{where}: {name}: a flow-matching model has no noise schedule of betas, and its "
            "velocity is no noise prediction; expected a scheduler such as DDPMScheduler"
        )
    if "beta_schedule" not in config:
        raise OcmError(
            f"{where}: {name} has no beta_schedule; expected the scheduler of a model with "
            "discrete timesteps, such as DDPMScheduler"
        )
    if predicted not in PREDICTIONS:
        raise OcmError(
            f"{where}: prediction_type: {predicted!r}; expected one of {', '.join(PREDICTIONS)}"
        )
    if config.get("variance_type") == "learned":
        raise OcmError(
            f"{where}: variance_type: 'learned'; expected 'learned_range' or a fixed one"
        )
    steps = config.get("num_train_timesteps", 1000)
    if not isinstance(steps, int) or not 1 <= steps <= MOST_STEPS:
        raise OcmError(
            f"{where}: num_train_timesteps: {steps!r}; expected a number from 1 to {MOST_STEPS}"
        )
    with reading(where, "the betas of a noise schedule", SAVE_AGAIN):
        SchedulerSchedule.model_validate(schedule_keys(config))


def schedule_keys(config: Mapping[str, Any]) -> dict[str, Any]:
    """`schedule` of an experiment, with diffusers' defaults for what the scheduler leaves out."""
    rescaled = bool(config.get("rescale_betas_zero_snr", False))
    trained = config.get("trained_betas")
    return {
        "kind": "scheduler",
        "steps": config.get("num_train_timesteps", 1000) - rescaled,
        "beta_schedule": config["beta_schedule"],
        "beta_start": float(config.get("beta_start", 1e-4)),
        "beta_end": float(config.get("beta_end", 0.02)),
        "trained_betas": None if trained is None else [float(beta) for beta in trained],
        "rescale_betas_zero_snr": rescaled,
    }


def _model_place(folder: Path) -> Path:
    for name in PARTS:
        if (folder / name / CONFIG).is_file():
            return folder / name
    raise OcmError(
        f"{folder}: no {CONFIG} in unet/, in transformer/ or in the folder itself; expected a "
        "folder written by save_pretrained of a pipeline (DDPMPipeline, DiTPipeline, "
        "StableDiffusionPipeline) or of a model"
    )


def _shape(config: Mapping[str, Any], where: Path) -> tuple[int, int, int] | None:
    size, channels = config.get("sample_size"), config.get("in_channels", 3)
    if size is None:
        return None
    sides = [size, size] if isinstance(size, int) else size
    if not isinstance(sides, list) or len(sides) != 2 or not all(isinstance(s, int) for s in sides):
        raise OcmError(f"{where}: sample_size: {size!r}; expected a side, or two")
    return channels, sides[0], sides[1]


def _learns_variance(config: Mapping[str, Any], scheduler: Mapping[str, Any], where: Path) -> bool:
    inputs, outputs = config.get("in_channels", 3), config.get("out_channels")
    learned = outputs == 2 * inputs
    if scheduler.get("variance_type") == "learned_range" and not learned:
        raise OcmError(
            f"{where}: out_channels: {outputs}, and its scheduler has variance_type "
            f"'learned_range'; expected {2 * inputs}"
        )
    return bool(learned)


def _values(file: Path) -> int:
    with reading(file, "a whole safetensors file", SAVE_AGAIN), safe_open(file, "numpy") as opened:
        return sum(prod(opened.get_slice(key).get_shape()) for key in opened.keys())  # noqa: SIM118


def _part_config(folder: Path, part: str) -> dict[str, Any] | None:
    file = folder / part / CONFIG
    return read_json_object(file, SAVE_AGAIN) if file.is_file() else None


def _licence(folder: Path) -> str | None:
    """Of the model card's head, `license: …`."""
    card = folder / "README.md"
    if not card.is_file():
        return None
    return next(_licences(card.read_text(encoding="utf-8", errors="replace")), None)


def _licences(card: str) -> Iterator[str]:
    head = card.split("---")[1] if card.startswith("---") else ""
    for line in head.splitlines():
        key, _, value = line.partition(":")
        if key.strip() in ("license", "licence") and value.strip():
            yield value.strip()
