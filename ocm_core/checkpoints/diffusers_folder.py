"""Describe a folder that diffusers wrote: what model is in it, and how it was trained.

Both layouts are read: parts in folders of their own (`unet/`, `scheduler/`, …) as in a pipeline,
and all files in one folder as in the first published models. Nothing is loaded: configurations are
JSON, and the headers of safetensors files say how many values there are.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from math import prod
from pathlib import Path
from re import finditer
from typing import Annotated, Any

from pydantic import Field, TypeAdapter, ValidationError
from safetensors import safe_open

from ocm_core.errors import OcmError
from ocm_core.io.checksums import sha256_of
from ocm_core.io.reading import read_json_object, reading
from ocm_core.networks.config import Blocks, check_diffusers_sizes
from ocm_core.project import model_folder
from ocm_core.schema.block import MOST_STEPS
from ocm_core.schema.experiment import SchedulerSchedule

CONFIG, SCHEDULER_CONFIG = "config.json", "scheduler_config.json"
MODEL_WEIGHTS, TEXT_WEIGHTS = "diffusion_pytorch_model", "model"  # as diffusers and transformers
SAVE_AGAIN = "save it again with save_pretrained(folder, safe_serialization=True)"
PARTS = ("unet", "transformer", "model", "")  # where the model may be
ENCODER, TOKENIZER = "text_encoder", "tokenizer"
PREDICTIONS = ("epsilon", "v_prediction", "sample")
TEXT_MODEL, TEXT_CLASS = "UNet2DConditionModel", "CLIPTextModel"
CLASSES_KEY = {
    "UNet2DModel": "num_class_embeds",
    "DiTTransformer2DModel": "num_embeds_ada_norm",
    TEXT_MODEL: "num_class_embeds",
}
Size = Annotated[int, Field(gt=0, le=2**16)]


@dataclass(frozen=True)
class TextSizes:
    """The sizes that decide how long it takes to build a text encoder, as transformers has them."""

    hidden_size: Annotated[int, Field(gt=0, le=2**13)] = 512
    intermediate_size: Size = 2048
    num_hidden_layers: Blocks = 12
    num_attention_heads: Size = 8
    max_position_embeddings: Annotated[int, Field(gt=0, le=2**12)] = 77
    vocab_size: Annotated[int, Field(gt=0, le=2**20)] = 49408


@dataclass(frozen=True)
class TextDescription:
    """The text encoder and tokenizer of a Stable-Diffusion pipeline."""

    folder: Path  # of the pipeline
    tokens: int  # of every prompt, padded or cut
    width: int  # of a token's embedding

    @property
    def files(self) -> list[Path]:
        """The files that the digest covers."""
        encoder, tokenizer = self.folder / ENCODER, self.folder / TOKENIZER
        words = sorted(file for file in tokenizer.iterdir() if file.is_file())
        return [encoder / CONFIG, *weight_files(encoder, TEXT_WEIGHTS), *words]

    @property
    def digest(self) -> str:
        return digest_of(self.folder, self.files)


@dataclass(frozen=True)
class ModelDescription:
    """A model of diffusers, in the words of an experiment's parameters."""

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
    zero_snr: bool  # the last timestep is pure noise, and is left out
    clips: bool  # whether its scheduler limits x̂_0 (to [-1, 1], or more)
    parameters: int
    vae: Mapping[str, Any] | None  # the autoencoder's configuration
    text: TextDescription | None  # the text encoder and tokenizer of a model that takes text
    licence: str | None  # as the model card has it

    @property
    def files(self) -> list[Path]:
        """The files that the digest covers."""
        return [self.place / CONFIG, *weight_files(self.place)]

    @property
    def scheduler_file(self) -> Path:
        return _scheduler_file(self.folder)

    @property
    def digest(self) -> str:
        return digest_of(self.place, self.files)


def describe(folder: str | Path) -> ModelDescription:
    """Describe the model in `folder`; refuse other kinds of model, prediction or schedule."""
    folder = model_folder(Path(folder))
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
        text=_describe_text(folder, config) if kind == TEXT_MODEL else None,
        licence=_licence(folder),
    )


def read_scheduler_config(folder: Path) -> dict[str, Any]:
    """Read the noise schedule of training and the prediction from a scheduler of any class."""
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
    """Refuse a scheduler without betas, or of a prediction or variance that is not supported."""
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
    """Return `schedule` of an experiment, with diffusers' defaults for what is left out."""
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
    """Return `license: …` of the model card's head."""
    card = folder / "README.md"
    text = card.read_text(encoding="utf-8", errors="replace") if card.is_file() else ""
    head = text.split("---")[1] if text.startswith("---") else ""
    return next(
        (found[1] for found in finditer(r"(?m)^[ \t]*licen[sc]e[ \t]*:[ \t]*(.*\S)", head)), None
    )


def weight_files(place: Path, stem: str = MODEL_WEIGHTS) -> list[Path]:
    """Return the shards that the index names, the one file, or the only variant that there is."""
    index = place / f"{stem}.safetensors.index.json"
    if index.is_file():
        with reading(index, "an index of safetensors files", SAVE_AGAIN):
            named = read_json_object(index, SAVE_AGAIN)["weight_map"].values()
            files = [place / name for name in sorted(set(named))]
    else:
        whole = place / f"{stem}.safetensors"
        files = [whole] if whole.is_file() else sorted(place.glob("*.safetensors"))[:1]
    if not files:
        raise OcmError(f"{place}: no file named *.safetensors; {SAVE_AGAIN}")
    for file in files:
        if not file.is_file():
            raise OcmError(f"{file}: no such file, and {index.name} names it; {SAVE_AGAIN}")
    return files


def digest_of(place: Path, files: list[Path]) -> str:
    """Return one digest of several files and their names."""
    sums = {file.relative_to(place).as_posix(): sha256_of(file) for file in files}
    return hashlib.sha256(json.dumps(sums, sort_keys=True).encode()).hexdigest()


def _describe_text(folder: Path, model: Mapping[str, Any]) -> TextDescription:
    """Describe the text encoder; `model` is the configuration of the UNet that it serves."""
    _refuse_xl(folder, model)
    sizes = _text_sizes(folder / ENCODER / CONFIG)
    tokens = _tokens(folder / TOKENIZER / "tokenizer_config.json", sizes)
    expected = model.get("cross_attention_dim", 1280)
    if sizes.hidden_size != expected:
        raise OcmError(
            f"{folder / ENCODER / CONFIG}: hidden_size: {sizes.hidden_size}, and the model's"
            f" cross_attention_dim is {expected!r:.100}; expected parts of one pipeline"
        )
    return TextDescription(folder, tokens, sizes.hidden_size)


def _refuse_xl(folder: Path, model: Mapping[str, Any]) -> None:
    if (folder / f"{ENCODER}_2").is_dir() or model.get("addition_embed_type") == "text_time":
        raise OcmError(
            f"{folder}: a Stable-Diffusion XL pipeline, whose model takes two texts and the sizes"
            " of images; expected one with a single text encoder (Stable Diffusion 1 or 2)"
        )


def _text_config(file: Path) -> dict[str, Any]:
    if not file.is_file():
        raise OcmError(
            f"{file}: no such file, and the model takes text; expected the whole folder that"
            " StableDiffusionPipeline.save_pretrained wrote"
        )
    return read_json_object(file, SAVE_AGAIN)


def _text_sizes(file: Path) -> TextSizes:
    config = _text_config(file)
    if (classes := config.get("architectures")) != [TEXT_CLASS]:
        raise OcmError(f"{file}: architectures: {classes!r:.100}; expected a {TEXT_CLASS}")
    given = {key.name: config[key.name] for key in fields(TextSizes) if key.name in config}
    try:
        return TypeAdapter(TextSizes).validate_python(given)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise OcmError(f"{file}: {first['loc'][0]}: {first['msg']}; {SAVE_AGAIN}") from None


def _tokens(file: Path, sizes: TextSizes) -> int:
    length, most = _text_config(file).get("model_max_length"), sizes.max_position_embeddings
    if not isinstance(length, int) or not 1 <= length <= most:
        raise OcmError(
            f"{file}: model_max_length: {length!r:.100}; expected a number up to the text encoder's"
            f" max_position_embeddings: {most}"
        )
    return length
