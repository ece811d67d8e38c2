"""Describe a folder that diffusers wrote: what model is in it, and how it was trained.

Parts may have folders of their own (`unet/`, `scheduler/`, …), or all files lie in one, as in the
first published models. Nothing is loaded: configurations and headers of weights say everything.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from re import search
from typing import Annotated, Any

from pydantic import Field
from safetensors import safe_open

from ocm_core.errors import OcmError
from ocm_core.io.checksums import sha256_of
from ocm_core.io.reading import read_json_object, reading
from ocm_core.networks.config import Blocks, Channels, DiffusersSizes, read_known
from ocm_core.project import model_folder
from ocm_core.schema.block import MOST_STEPS
from ocm_core.schema.experiment import DIFFUSERS_ADAPTERS, SchedulerSchedule

CONFIG, SCHEDULER_CONFIG = "config.json", "scheduler_config.json"
MODEL_WEIGHTS, TEXT_WEIGHTS = "diffusion_pytorch_model", "model"  # as diffusers and transformers
SAVE_AGAIN = "save it again with save_pretrained(folder, safe_serialization=True)"
PARTS = ("unet", "transformer", "model", "")  # where the model may be
ENCODER, TOKENIZER = "text_encoder", "tokenizer"
PREDICTIONS = ("epsilon", "v_prediction", "sample")
TEXT_MODEL, TEXT_CLASS = "UNet2DConditionModel", "CLIPTextModel"


@dataclass(frozen=True)
class TextSizes:
    """The sizes that decide how long it takes to build a text encoder, as transformers has them."""

    hidden_size: Channels = 512
    intermediate_size: Channels = 2048
    num_hidden_layers: Blocks = 12
    num_attention_heads: Channels = 8
    max_position_embeddings: Annotated[int, Field(gt=0, le=2**12)] = 77
    vocab_size: Annotated[int, Field(gt=0, le=2**20)] = 49408


@dataclass(frozen=True)
class TextDescription:
    """The text encoder and tokenizer of a Stable-Diffusion pipeline."""

    folder: Path  # of the pipeline
    tokens: int  # of every prompt, padded or cut
    width: int  # of a token's embedding

    @property
    def digest(self) -> str:
        """A digest of encoder and tokenizer."""
        encoder, tokenizer = self.folder / ENCODER, self.folder / TOKENIZER
        words = sorted(file for file in tokenizer.iterdir() if file.is_file())
        files = [encoder / CONFIG, *weight_files(encoder, TEXT_WEIGHTS), *words]
        return digest_of(self.folder, files)


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
    scheduler_file: Path
    scheduler: Mapping[str, Any]  # its configuration
    schedule: Mapping[str, Any]  # `schedule` of an experiment
    parameters: int
    vae: Mapping[str, Any] | None  # the autoencoder's configuration
    text: TextDescription | None  # the text encoder and tokenizer of a model that takes text
    licence: str | None  # as the model card has it

    @property
    def files(self) -> list[Path]:
        """The configuration and the weights."""
        return [self.place / CONFIG, *weight_files(self.place)]

    @property
    def digest(self) -> str:
        return digest_of(self.place, self.files)


def describe(folder: str | Path) -> ModelDescription:
    """Describe the model in `folder`; refuse other kinds of model, prediction or schedule."""
    folder = model_folder(Path(folder))
    place = _first(folder, PARTS, CONFIG)
    config = read_json_object(place / CONFIG, SAVE_AGAIN)
    kind = str(config.get("_class_name"))
    if kind not in DIFFUSERS_ADAPTERS:
        expected = f"expected one of {', '.join(DIFFUSERS_ADAPTERS)}"
        raise OcmError(f"{place / CONFIG}: describes a {kind}; {expected}")
    sizes = read_known(DiffusersSizes, config, place / CONFIG)
    scheduler_file = _first(folder, ("scheduler", ""), SCHEDULER_CONFIG) / SCHEDULER_CONFIG
    scheduler = read_json_object(scheduler_file, SAVE_AGAIN)
    check_scheduler(scheduler, scheduler_file)
    null_class = config.get("num_embeds_ada_norm")
    vae = folder / "vae" / CONFIG
    learns_variance = sizes.out_channels == 2 * sizes.in_channels
    if scheduler.get("variance_type") == "learned_range" and not learns_variance:
        found = f"{sizes.out_channels}, and its scheduler has variance_type 'learned_range'"
        expected = f"expected {2 * sizes.in_channels}"
        raise OcmError(f"{place / CONFIG}: out_channels: {found}; {expected}")
    parameters = 0
    for file in weight_files(place):
        with reading(file, "a whole safetensors file", SAVE_AGAIN), safe_open(file, "np") as opened:
            slices = [opened.get_slice(key) for key in opened.keys()]  # noqa: SIM118
            parameters += sum(prod(values.get_shape()) for values in slices)
    return ModelDescription(
        folder=folder,
        place=place,
        kind=kind,
        config=config,
        shape=sizes.shape,
        classes=config.get("num_class_embeds", null_class),
        null_class=null_class,  # of a DiT, behind its classes
        learns_variance=learns_variance,
        prediction=scheduler.get("prediction_type", "epsilon"),
        scheduler_file=scheduler_file,
        scheduler=scheduler,
        schedule=schedule_keys(scheduler),
        parameters=parameters,
        vae=read_json_object(vae, SAVE_AGAIN) if vae.is_file() else None,
        text=_describe_text(folder, config) if kind == TEXT_MODEL else None,
        licence=_licence(folder),
    )


def _first(folder: Path, parts: Iterable[str], file: str) -> Path:
    """Return the first of the parts of the folder that has the file."""
    for part in parts:
        if (folder / part / file).is_file():
            return folder / part
    places = ", ".join(f"in {part}/" for part in parts if part)
    raise OcmError(
        f"{folder}: no {file} {places} or in the folder itself; expected a folder written by"
        " save_pretrained of a pipeline (DDPMPipeline, DiTPipeline, StableDiffusionPipeline), or of"
        " a model and its scheduler"
    )


def check_scheduler(config: Mapping[str, Any], where: object) -> None:
    """Refuse a scheduler without betas, or of a prediction or variance that is not supported."""
    name, predicted = config.get("_class_name"), config.get("prediction_type", "epsilon")
    flows = "FlowMatch" in str(name) or config.get("use_flow_sigmas")
    if flows or "beta_schedule" not in config:
        found = ": a flow-matching model, and" if flows else " has no beta_schedule:"
        expected = "the scheduler of a model with discrete timesteps, such as DDPMScheduler"
        needed = "a noise schedule of betas is needed"
        raise OcmError(f"{where}: {name}{found} {needed}; expected {expected}")
    if predicted not in PREDICTIONS:
        expected = f"expected one of {', '.join(PREDICTIONS)}"
        raise OcmError(f"{where}: prediction_type: {predicted!r}; {expected}")
    if (variance := config.get("variance_type")) == "learned":
        raise OcmError(f"{where}: variance_type: {variance!r}; expected 'learned_range' or fixed")
    steps = config.get("num_train_timesteps", 1000)
    if not isinstance(steps, int) or not 1 <= steps <= MOST_STEPS:
        expected = f"expected a number from 1 to {MOST_STEPS}"
        raise OcmError(f"{where}: num_train_timesteps: {steps!r}; {expected}")
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


def _licence(folder: Path) -> str | None:
    """Return `license: …` of the model card's head."""
    card = folder / "README.md"
    text = card.read_text(encoding="utf-8", errors="replace") if card.is_file() else ""
    head = text.split("---")[1] if text.startswith("---") else ""
    found = search(r"(?m)^[ \t]*licen[sc]e[ \t]*:[ \t]*(.*\S)", head)
    return found[1] if found else None


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
    if (folder / f"{ENCODER}_2").is_dir() or model.get("addition_embed_type") == "text_time":
        found = "a Stable-Diffusion XL pipeline, whose model takes two texts and sizes of images"
        expected = "expected one with a single text encoder (Stable Diffusion 1 or 2)"
        raise OcmError(f"{folder}: {found}; {expected}")
    encoder, tokenizer = folder / ENCODER / CONFIG, folder / TOKENIZER / "tokenizer_config.json"
    for file in (encoder, tokenizer):
        if not file.is_file():
            expected = "expected all that StableDiffusionPipeline.save_pretrained wrote"
            raise OcmError(f"{file}: no such file, and the model takes text; {expected}")
    config, words = (read_json_object(file, SAVE_AGAIN) for file in (encoder, tokenizer))
    if (classes := config.get("architectures")) != [TEXT_CLASS]:
        raise OcmError(f"{encoder}: architectures: {classes!r:.100}; expected a {TEXT_CLASS}")
    sizes = read_known(TextSizes, config, encoder)
    tokens, most = words.get("model_max_length"), sizes.max_position_embeddings
    if not isinstance(tokens, int) or not 1 <= tokens <= most:
        expected = f"expected a number up to the text encoder's max_position_embeddings: {most}"
        raise OcmError(f"{tokenizer}: model_max_length: {tokens!r:.100}; {expected}")
    if sizes.hidden_size != (width := model.get("cross_attention_dim", 1280)):
        found = f"{sizes.hidden_size}, and the model's cross_attention_dim is {width!r:.100}"
        raise OcmError(f"{encoder}: hidden_size: {found}; expected parts of one pipeline")
    return TextDescription(folder, tokens, sizes.hidden_size)
