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
from typing import Annotated, Any, NamedTuple

from pydantic import Field, TypeAdapter
from safetensors import safe_open

from ocm_core.errors import OcmError
from ocm_core.io.checksums import sha256_of
from ocm_core.io.reading import read_json_object, reading
from ocm_core.networks.config import Blocks, Channels, DiffusersSizes, read_known
from ocm_core.project import model_folder
from ocm_core.schema.block import MOST_STEPS
from ocm_core.schema.experiment import DIFFUSERS_ADAPTERS, PredictionType, ScheduleParams

CONFIG, SCHEDULER_CONFIG, INDEX = "config.json", "scheduler_config.json", "model_index.json"
MODEL_WEIGHTS, TEXT_WEIGHTS = "diffusion_pytorch_model", "model"  # as diffusers and transformers
SAVE_AGAIN = "save it again with save_pretrained(folder, safe_serialization=True)"
PREDICTIONS = ("epsilon", "v_prediction", "sample")
OF_EDM = ("EDMEuler", "EDMDPMSolver", "Covariance")
DISTILLED = ("LCM", "TCD", "SCM", "CMStoch", "FlowMatchLCM", "FlowMap", "PiFlow")  # few steps
NEEDED = {  # of classes without an adapter: what it would take
    "WanTransformer3DModel": "data sets of videos",
}
NOT_FLOW = {  # what changes the path of a flow-matching model, but for its shift
    "shift_terminal": "the path is stretched to end before pure noise",
    "invert_sigmas": "time runs from noise to data",
}
PromptShapes = dict[str, tuple[int, ...]]
CLIP, CLIP_PROJECTED, T5 = "CLIPTextModel", "CLIPTextModelWithProjection", "T5EncoderModel"


class TextForm(NamedTuple):
    """What `encode_prompt` of a pipeline of diffusers makes of a prompt."""

    pipeline: str
    encoders: tuple[str, ...]  # classes of transformers; the last one's tokens are the model's
    width: str  # of a token, in the model's configuration
    tokens: int = 0  # of the last encoder, unless that is CLIP's
    with_clip: bool = False  # tokens of CLIP come before them
    second: str = ""  # the model's argument for what is beside the tokens
    place: int = 1  # of that, in what is returned

    @property
    def parts(self) -> list[tuple[str, str, str]]:
        """The class of each encoder, and the folders of encoder and tokenizer."""
        pairs = zip(self.encoders, ("", "_2", "_3"), strict=False)  # there may be fewer encoders
        return [(kind, f"text_encoder{n}", f"tokenizer{n}") for kind, n in pairs]

    def arrays(self, model: Mapping[str, Any], clip_tokens: int, where: object) -> PromptShapes:
        """Return the shapes of what a model of this configuration is given for a prompt."""
        sizes = read_known(TextWidths, model, where)
        length = self.tokens + (clip_tokens if self.with_clip else 0)
        width = getattr(sizes, self.width) or sizes.cross_attention_dim
        shapes: PromptShapes = {"encoder_hidden_states": (length, width)}
        beside = {POOLED: (sizes.pooled_projection_dim,), MASK: (length,)}
        return shapes | ({self.second: beside[self.second]} if self.second else {})


POOLED, MASK = "pooled_projections", "encoder_attention_mask"
TEXTS = {  # of the model's class: the pipelines that it may be in
    "UNet2DConditionModel": (
        TextForm("StableDiffusionPipeline", (CLIP,), "cross_attention_dim", 0, True),
    ),
    "SD3Transformer2DModel": (
        TextForm(
            "StableDiffusion3Pipeline",
            (CLIP_PROJECTED, CLIP_PROJECTED, T5),
            "joint_attention_dim",
            tokens=256,
            with_clip=True,
            second=POOLED,
            place=2,
        ),
    ),
    "PixArtTransformer2DModel": (
        TextForm("PixArtAlphaPipeline", (T5,), "caption_channels", 120, second=MASK),
        TextForm("PixArtSigmaPipeline", (T5,), "caption_channels", 300, second=MASK),
    ),
    "SanaTransformer2DModel": (
        TextForm("SanaPipeline", ("Gemma2Model",), "caption_channels", 300, second=MASK),
    ),
    "FluxTransformer2DModel": (
        TextForm("FluxPipeline", (CLIP, T5), "joint_attention_dim", 512, second=POOLED),
    ),
}
VOCABULARIES = {T5: "spiece.model", "Gemma2Model": "tokenizer.model"}  # else that of CLIP
FORMS = {form.pipeline: form for forms in TEXTS.values() for form in forms}


@dataclass(frozen=True)
class TextWidths:
    """The widths of text in a model's configuration."""

    cross_attention_dim: Channels = 1280
    joint_attention_dim: Channels = 4096
    caption_channels: Channels | None = None
    pooled_projection_dim: Channels = 2048


@dataclass(frozen=True)
class TextSizes:
    """The sizes that decide how long it takes to build a text encoder, as transformers has them."""

    hidden_size: Channels = 512
    intermediate_size: Channels = 2048
    num_hidden_layers: Blocks = 12
    num_attention_heads: Channels = 8
    max_position_embeddings: Annotated[int, Field(gt=0, le=2**20)] = 77
    vocab_size: Annotated[int, Field(gt=0, le=2**20)] = 49408
    d_model: Channels = 512  # of T5, as what follows
    d_ff: Channels = 2048
    num_layers: Blocks = 6


@dataclass(frozen=True)
class TextDescription:
    """The text encoders and tokenizers of a pipeline."""

    folder: Path  # of the pipeline
    form: TextForm
    arrays: PromptShapes  # of every prompt, padded or cut

    @property
    def digest(self) -> str:
        """A digest of encoders and tokenizers."""
        files = list[Path]()
        for _, encoder, tokenizer in self.form.parts:
            place, words = self.folder / encoder, (self.folder / tokenizer).iterdir()
            files += [place / CONFIG, *weight_files(place, TEXT_WEIGHTS)]
            files += sorted(file for file in words if file.is_file())
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
    scheduler: Mapping[str, Any]  # its configuration, with the shift of the model's resolution
    schedule: Mapping[str, Any]  # `schedule` of an experiment
    parameters: int
    vae: Mapping[str, Any] | None  # the autoencoder's configuration
    text: TextDescription | None  # the text encoders of a model that takes text
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
    place = _first(folder, ("unet", "transformer", "model", ""), CONFIG)
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
    null_class = None if kind in TEXTS else config.get("num_embeds_ada_norm")
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
        scheduler=scheduler,
        schedule=schedule_keys(scheduler),
        parameters=parameters,
        vae=read_json_object(vae, SAVE_AGAIN) if vae.is_file() else None,
        text=_describe_text(folder, config, place) if kind in TEXTS else None,
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


def _describe_text(folder: Path, model: Mapping[str, Any], place: Path) -> TextDescription:
    """Describe the text encoders; `model` is the configuration of the model that they serve."""
    form = _form_of(folder, model)
    described = [_describe_encoder(folder, *part) for part in form.parts]
    arrays = form.arrays(model, described[0][1], place / CONFIG)
    kind, encoder, _ = form.parts[-1]
    key, width = "d_model" if kind == T5 else "hidden_size", arrays["encoder_hidden_states"][1]
    if (found := getattr(described[-1][0], key)) != width:
        text = f"{found}, and the model's {form.width} is {width}; expected parts of one pipeline"
        raise OcmError(f"{folder / encoder / CONFIG}: {key}: {text}")
    return TextDescription(folder, form, arrays)


def _form_of(folder: Path, model: Mapping[str, Any]) -> TextForm:
    """Return the pipeline that the folder's index names, or the only one of the model's class."""
    forms = TEXTS[model["_class_name"]]
    extra = (folder / "text_encoder_2").is_dir() or model.get("addition_embed_type") == "text_time"
    if forms[0].pipeline == "StableDiffusionPipeline" and extra:
        found = "a Stable-Diffusion XL pipeline, whose model takes two texts and sizes of images"
        expected = "expected one with a single text encoder (Stable Diffusion 1 or 2)"
        raise OcmError(f"{folder}: {found}; {expected}")
    if len(forms) == 1:
        return forms[0]
    named = read_json_object(folder / INDEX, SAVE_AGAIN).get("_class_name")
    names = [form.pipeline for form in forms]
    if named not in names:
        raise OcmError(f"{folder / INDEX}: {named!r:.100}; expected one of {', '.join(names)}")
    return FORMS[named]


def _describe_encoder(
    folder: Path, kind: str, encoder: str, tokenizer: str
) -> tuple[TextSizes, int]:
    """Return the sizes of a text encoder, and the tokens that its tokenizer pads to, if CLIP's."""
    where, words = folder / encoder / CONFIG, folder / tokenizer / "tokenizer_config.json"
    for file in (where, words):
        if not file.is_file():
            expected = "expected all that save_pretrained of the pipeline wrote"
            raise OcmError(f"{file}: no such file, and the model takes text; {expected}")
    names = ("tokenizer.json", VOCABULARIES.get(kind, "vocab.json"))
    if not any((words.parent / name).is_file() for name in names):  # transformers takes none for it
        raise OcmError(f"{words.parent}: no {' or '.join(names)}; {SAVE_AGAIN}")
    config = read_json_object(where, SAVE_AGAIN)
    if (classes := config.get("architectures")) != [kind]:
        raise OcmError(f"{where}: architectures: {classes!r:.100}; expected a {kind}")
    sizes = read_known(TextSizes, config, where)
    tokens = read_json_object(words, SAVE_AGAIN).get("model_max_length")
    if not kind.startswith("CLIP"):
        return sizes, 0
    most = sizes.max_position_embeddings
    if not isinstance(tokens, int) or not 1 <= tokens <= most:
        expected = f"expected a number up to the text encoder's max_position_embeddings: {most}"
        raise OcmError(f"{words}: model_max_length: {tokens!r:.100}; {expected}")
    return sizes, tokens
