"""Describe a folder that diffusers wrote: what model is in it, and how it was trained.

Parts may have folders of their own (`unet/`, `scheduler/`, …), or all files lie in one, as in the
first published models. Nothing is loaded: configurations and headers of weights say everything.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import exp, prod
from pathlib import Path
from re import search
from typing import Annotated, Any

from pydantic import Field, TypeAdapter
from safetensors import safe_open

from ocm_core.errors import OcmError
from ocm_core.io.checksums import sha256_of
from ocm_core.io.reading import read_json_object, reading
from ocm_core.networks.config import Blocks, Channels, DiffusersSizes, read_known
from ocm_core.project import model_folder
from ocm_core.schema.block import MOST_STEPS
from ocm_core.schema.experiment import DIFFUSERS_ADAPTERS, PredictionType, ScheduleParams

CONFIG, SCHEDULER_CONFIG = "config.json", "scheduler_config.json"
MODEL_WEIGHTS, TEXT_WEIGHTS = "diffusion_pytorch_model", "model"  # as diffusers and transformers
SAVE_AGAIN = "save it again with save_pretrained(folder, safe_serialization=True)"
PARTS = ("unet", "transformer", "model", "")  # where the model may be
ENCODER, TOKENIZER = "text_encoder", "tokenizer"
PREDICTIONS = ("epsilon", "v_prediction", "sample")
OF_EDM = ("EDMEuler", "EDMDPMSolver", "Covariance")
DISTILLED = ("LCM", "TCD", "SCM", "CMStoch", "FlowMatchLCM", "FlowMap", "PiFlow")  # few steps
NEEDED = {  # of classes without an adapter: what it would take
    "SD3Transformer2DModel": "a store of three encoders' tokens and a pooled vector of each prompt",
    "FluxTransformer2DModel": "packed latents with positions, and a store of two encoders' texts",
    "PixArtTransformer2DModel": "a store of T5's tokens with a mask of each prompt",
    "SanaTransformer2DModel": "an AutoencoderDC, and a store of a language model's tokens",
    "WanTransformer3DModel": "data sets of videos",
}
NOT_FLOW = {  # what changes the path of a flow-matching model, but for its shift
    "shift_terminal": "the path is stretched to end before pure noise",
    "invert_sigmas": "time runs from noise to data",
}
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
    prediction: PredictionType
    scheduler_file: Path
    scheduler: Mapping[str, Any]  # its configuration, with the shift of the model's resolution
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
    if config.get("guidance_embeds"):
        reason = "guidance_embeds: a distilled model, which is told a guidance scale"
        raise OcmError(f"{place / CONFIG}: {reason}, is no posterior mean; expected one without")
    if kind not in DIFFUSERS_ADAPTERS:
        needs = f", which needs {NEEDED[kind]}" if kind in NEEDED else ""
        expected = f"expected one of {', '.join(DIFFUSERS_ADAPTERS)}"
        raise OcmError(f"{place / CONFIG}: describes a {kind}{needs}; {expected}")
    sizes = read_known(DiffusersSizes, config, place / CONFIG)
    scheduler_file = _first(folder, ("scheduler", ""), SCHEDULER_CONFIG) / SCHEDULER_CONFIG
    own = read_json_object(scheduler_file, SAVE_AGAIN)
    scheduler = resolved(own, config, scheduler_file)
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
        prediction=prediction_of(scheduler),
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


def resolved(config: Mapping[str, Any], model: Mapping[str, Any], where: object) -> dict[str, Any]:
    """Return a checked configuration of a scheduler; a dynamic shift becomes that of the model.

    Refuse a scheduler without a noise schedule, of a prediction or variance that is not supported,
    or of a distilled model.
    """
    name, config = str(config.get("_class_name")), dict(config)
    if name.startswith(DISTILLED):
        reason = "a distilled model, which is no posterior mean, nor its Jacobian a covariance"
        raise OcmError(f"{where}: {name}: {reason}; expected the one that it was distilled from")
    if "FlowMatch" in name:
        config |= {"use_flow_sigmas": True, "flow_shift": config.get("shift", 1.0)}
        config |= {"prediction_type": "flow_prediction"}
    if config.get("use_flow_sigmas") and config.get("use_dynamic_shifting"):
        config |= {"flow_shift": _shift(config, model, where), "use_dynamic_shifting": False}
    _check_scheduler(name, config, where)
    kind = schedule_keys(config)["kind"]
    if kind != "scheduler" and model.get("time_embedding_type") == "learned":
        found = f"its time is a number of the noise level ({kind})"
        raise OcmError(f"{where}: {name}: {found}, and the model has a table of whole timesteps")
    return config


def _shift(config: Mapping[str, Any], model: Mapping[str, Any], where: object) -> float:
    """Return the shift of the model's resolution: μ is linear in the number of its tokens."""
    size, patch = model.get("sample_size"), model.get("patch_size") or 1
    if size is None:
        found = "use_dynamic_shifting, and the model has no sample_size to tell the shift by"
        raise OcmError(f"{where}: {found}; write the shift into the scheduler's configuration")
    rows, columns = (size, size) if isinstance(size, int) else size
    base, most = config.get("base_image_seq_len", 256), config.get("max_image_seq_len", 4096)
    low, high = config.get("base_shift", 0.5), config.get("max_shift", 1.15)
    tokens = (rows // patch) * (columns // patch)
    mu = low + (high - low) * (tokens - base) / (most - base)
    return float(mu if config.get("time_shift_type") == "linear" else exp(mu))


def _check_scheduler(name: str, config: Mapping[str, Any], where: object) -> None:
    predicted, flows = config.get("prediction_type", "epsilon"), config.get("use_flow_sigmas")
    for key in NOT_FLOW.keys() & {key for key, value in config.items() if value} if flows else ():
        raise OcmError(f"{where}: {key}: {config[key]!r}: {NOT_FLOW[key]}; expected none")
    is_edm = config.get("sigma_data") is not None
    if not flows and "beta_schedule" not in config and not (is_edm and name.startswith(OF_EDM)):
        needed = "a noise schedule of betas, of a flow, or of EDM is needed"
        expected = "the scheduler that the model was trained with, such as DDPMScheduler"
        raise OcmError(f"{where}: {name} has no beta_schedule: {needed}; expected {expected}")
    allowed = ("flow_prediction",) if flows else ("epsilon",) if is_edm else PREDICTIONS
    if predicted not in allowed:
        expected = f"expected one of {', '.join(allowed)}"
        raise OcmError(f"{where}: prediction_type: {predicted!r}; {expected}")
    if (variance := config.get("variance_type")) == "learned":
        raise OcmError(f"{where}: variance_type: {variance!r}; expected 'learned_range' or fixed")
    steps = config.get("num_train_timesteps", 1000)
    if not isinstance(steps, int) or not 1 <= steps <= MOST_STEPS:
        expected = f"expected a number from 1 to {MOST_STEPS}"
        raise OcmError(f"{where}: num_train_timesteps: {steps!r}; {expected}")
    with reading(where, "a noise schedule", SAVE_AGAIN):
        TypeAdapter(ScheduleParams).validate_python(schedule_keys(config))


def prediction_of(scheduler: Mapping[str, Any]) -> PredictionType:
    """Return `network.prediction` of an experiment, given a scheduler's configuration."""
    if scheduler.get("sigma_data") is not None:
        return "edm"
    predicted: PredictionType = scheduler.get("prediction_type", "epsilon")
    return predicted


def range_of(scheduler: Mapping[str, Any]) -> float:
    """Return `network.range` of an experiment: EDM has data in units of their deviation."""
    return 1.0 / float(scheduler.get("sigma_data") or 1.0)


def schedule_keys(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return `schedule` of an experiment, with diffusers' defaults for what is left out."""
    steps = config.get("num_train_timesteps", 1000)
    if config.get("use_flow_sigmas"):  # s = 1 holds no data
        return {"kind": "flow", "steps": steps - 1, "shift": float(config.get("flow_shift", 1.0))}
    if config.get("sigma_data") is not None:
        rho = None if config.get("sigma_schedule") == "exponential" else config.get("rho", 7.0)
        sigmas = {key: float(config[key]) for key in ("sigma_min", "sigma_max", "sigma_data")}
        return {"kind": "edm", "steps": steps, **sigmas, "rho": rho}
    rescaled = bool(config.get("rescale_betas_zero_snr", False))
    trained = config.get("trained_betas")
    return {
        "kind": "scheduler",
        "steps": steps - rescaled,
        "beta_schedule": config["beta_schedule"],
        "beta_start": float(config.get("beta_start", 1e-4)),
        "beta_end": float(config.get("beta_end", 0.02)),
        "trained_betas": None if trained is None else [float(beta) for beta in trained],
        "rescale_betas_zero_snr": rescaled,
    }


def scheduler_keys(schedule: Mapping[str, Any], prediction: PredictionType) -> dict[str, Any]:
    """Invert `schedule_keys` and `prediction_of`: what a scheduler is configured with."""
    keys, kind = {key: value for key, value in schedule.items() if key != "kind"}, schedule["kind"]
    steps = keys.pop("steps") + (kind == "flow" or keys.get("rescale_betas_zero_snr", False))
    if kind == "flow":
        keys = {"use_flow_sigmas": True, "flow_shift": keys["shift"]}
    if kind == "edm":
        prediction = "epsilon"
        keys |= {"sigma_schedule": "exponential" if keys["rho"] is None else "karras"}
    return {"num_train_timesteps": steps, "prediction_type": prediction, **keys}


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
