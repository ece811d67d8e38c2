"""The text encoder and tokenizer of a Stable-Diffusion pipeline, described from their files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, TypeAdapter, ValidationError

from ocm_core.checkpoints.weight_files import CONFIG, SAVE_AGAIN, digest_of, weight_files
from ocm_core.errors import OcmError
from ocm_core.io.reading import read_json_object
from ocm_core.networks.config import Blocks

ENCODER, TOKENIZER = "text_encoder", "tokenizer"
TEXT_WEIGHTS = "model"  # as transformers names the file
CLASS = "CLIPTextModel"
Size = Annotated[int, Field(gt=0, le=2**16)]


@dataclass(frozen=True)
class TextSizes:
    """What decides how long it takes to build the encoder, with the defaults of transformers."""

    hidden_size: Annotated[int, Field(gt=0, le=2**13)] = 512
    intermediate_size: Size = 2048
    num_hidden_layers: Blocks = 12
    num_attention_heads: Size = 8
    max_position_embeddings: Annotated[int, Field(gt=0, le=2**12)] = 77
    vocab_size: Annotated[int, Field(gt=0, le=2**20)] = 49408


@dataclass(frozen=True)
class TextDescription:
    folder: Path  # of the pipeline
    tokens: int  # of every prompt, padded or cut
    width: int  # of a token's embedding

    @property
    def files(self) -> list[Path]:
        """What the digest is of."""
        encoder, tokenizer = self.folder / ENCODER, self.folder / TOKENIZER
        words = sorted(file for file in tokenizer.iterdir() if file.is_file())
        return [encoder / CONFIG, *weight_files(encoder, TEXT_WEIGHTS), *words]

    @property
    def digest(self) -> str:
        return digest_of(self.folder, self.files)


def describe_text(folder: Path, model: Mapping[str, Any]) -> TextDescription:
    """`model` is the configuration of the UNet that reads the embeddings."""
    _refuse_xl(folder, model)
    sizes = _sizes(folder / ENCODER / CONFIG)
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


def _config(file: Path) -> dict[str, Any]:
    if not file.is_file():
        raise OcmError(
            f"{file}: no such file, and the model takes text; expected the whole folder that"
            " StableDiffusionPipeline.save_pretrained wrote"
        )
    return read_json_object(file, SAVE_AGAIN)


def _sizes(file: Path) -> TextSizes:
    config = _config(file)
    if (found := config.get("architectures")) != [CLASS]:
        raise OcmError(f"{file}: architectures: {found!r:.100}; expected a {CLASS}")
    given = {key.name: config[key.name] for key in fields(TextSizes) if key.name in config}
    try:
        return TypeAdapter(TextSizes).validate_python(given)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise OcmError(f"{file}: {first['loc'][0]}: {first['msg']}; {SAVE_AGAIN}") from None


def _tokens(file: Path, sizes: TextSizes) -> int:
    found, most = _config(file).get("model_max_length"), sizes.max_position_embeddings
    if not isinstance(found, int) or not 1 <= found <= most:
        raise OcmError(
            f"{file}: model_max_length: {found!r:.100}; expected a number up to the text encoder's"
            f" max_position_embeddings: {most}"
        )
    return found
