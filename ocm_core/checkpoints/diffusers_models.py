"""Load the model and the text encoders in a folder that diffusers wrote, running nothing inside.

diffusers and transformers replace missing weights by random ones; here a folder whose weights do
not fit its configuration is refused. Half precision is read into float32.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from inspect import signature
from pathlib import Path
from typing import Any, Self

import torch
from pydantic import TypeAdapter
from safetensors import safe_open

from ocm_core.checkpoints import diffusers_folder as folders
from ocm_core.checkpoints.diffusers_folder import (
    SAVE_AGAIN,
    ModelDescription,
    PromptShapes,
    TextForm,
)
from ocm_core.diffusion import schedule as schedules
from ocm_core.diffusion.denoiser import Denoiser, TimeConvention
from ocm_core.diffusion.schedule import Schedule
from ocm_core.diffusion.score_network import ScoreNetwork
from ocm_core.errors import OcmError
from ocm_core.io.reading import reading
from ocm_core.networks.converted import denoiser_of
from ocm_core.networks.diffusers import PromptArrays, new_model, wrapped
from ocm_core.networks.keys import refuse_larger, refuse_not_finite
from ocm_core.schema.experiment import ScheduleParams

TIME = TimeConvention(shift=1)  # theirs begins at 0


def read_model(described: ModelDescription) -> Any:
    """Load diffusers' own object, in float32."""
    with torch.device("meta"):
        empty = new_model(described.config)
    return _read(empty, described.place, folders.MODEL_WEIGHTS, low_cpu_mem_usage=False)


def read_network(described: ModelDescription, null_class: int | None = None) -> ScoreNetwork:
    """Load the model as a score network."""
    return wrapped(read_model(described), null_class)


def trained_with(network: ScoreNetwork, scheduler: Mapping[str, Any]) -> Denoiser:
    """Return a denoiser, given the resolved configuration of the scheduler of its training."""
    prediction, data_range = folders.prediction_of(scheduler), folders.range_of(scheduler)
    return denoiser_of(network, schedule_of(scheduler), TIME, prediction, data_range)


def schedule_of(scheduler: Mapping[str, Any]) -> Schedule:
    """Return the schedule of a scheduler's resolved configuration."""
    keys = folders.schedule_keys(scheduler)
    return schedules.of_params(TypeAdapter(ScheduleParams).validate_python(keys))


TOKENIZERS = {"T5EncoderModel": "T5TokenizerFast", "Gemma2Model": "GemmaTokenizerFast"}


@dataclass(frozen=True)
class TextEncoder:
    """The text encoders of a pipeline of diffusers, from prompts to what its model is given."""

    pipeline: Any  # of diffusers, without model and autoencoder
    form: TextForm
    arrays: PromptShapes  # that a prompt becomes

    @classmethod
    def load(cls, folder: str | Path, device: str | torch.device = "cpu") -> Self:
        """Load them from the folder of the pipeline, in float32."""
        described = folders.describe(folder)
        if (text := described.text) is None:
            raise OcmError(f"{folder}: has a {described.kind}, which takes no text")
        if find_spec("transformers") is None:
            needed = "the package transformers: `pip install 'ocm-core[text]'`"
            raise OcmError(f"{folder}: its text encoder needs {needed}")
        parts = dict[str, Any]()
        for kind, encoder, tokenizer in text.form.parts:
            model, words = _read_encoder(text.folder, kind, encoder, tokenizer)
            parts |= {encoder: model.to(device), tokenizer: words}
        return cls.of(text.form, described.config, parts)

    @classmethod
    def of(cls, form: TextForm, model: Mapping[str, Any], parts: Mapping[str, Any]) -> Self:
        """Put together what serves a model of this configuration."""
        import diffusers

        kind = getattr(diffusers, form.pipeline)
        others = dict.fromkeys(signature(kind).parameters)
        clip_tokens = parts["tokenizer"].model_max_length
        arrays = form.arrays(model, clip_tokens, "config.json")
        return cls(kind(**{**others, **parts}), form, arrays)

    @property
    def parts(self) -> dict[str, Any]:
        """Encoders and tokenizers by the names of their folders."""
        names = [name for _, *pair in self.form.parts for name in pair]
        return {name: getattr(self.pipeline, name) for name in names}

    @torch.no_grad()
    def __call__(self, prompts: Sequence[str]) -> PromptArrays:
        """Encode each prompt, padded or cut to the length that the model was trained with."""
        call = signature(type(self.pipeline).__call__).parameters
        instruction = call.get("complex_human_instruction")  # of Sana: before any text but none
        encoded = self._encoded(prompts, instruction and instruction.default)
        if instruction and "" in prompts:
            empty = torch.tensor([not text for text in prompts])
            for name, array in self._encoded([""], None).items():
                encoded[name][empty] = array
        return encoded

    def _encoded(self, prompts: Sequence[str], instruction: Any) -> PromptArrays:
        encode, form = self.pipeline.encode_prompt, self.form
        given = dict.fromkeys(("prompt_2", "prompt_3")) | {
            "prompt": list(prompts),
            "device": self.pipeline.text_encoder.device,
            "num_images_per_prompt": 1,
            "do_classifier_free_guidance": False,
            "max_sequence_length": form.tokens,
            "complex_human_instruction": instruction,
        }
        known = signature(encode).parameters
        found = encode(**{key: value for key, value in given.items() if key in known})
        arrays = {"encoder_hidden_states": found[0].float()}
        if form.second:
            arrays[form.second] = found[form.place].float()
        for name, array in arrays.items():
            if array.shape[1:] != self.arrays[name]:
                text = f"{name} of shape {tuple(array.shape[1:])}, and the model takes"
                remedy = "expected parts of one pipeline"
                raise OcmError(f"{form.pipeline}: gives {text} {self.arrays[name]}; {remedy}")
        return arrays

    def cut(self, prompts: Sequence[str]) -> int:
        """Count the prompts that are longer than any of the encoders reads."""
        longer = torch.ones(len(prompts), dtype=torch.bool)
        for kind, _, name in self.form.parts:
            tokenizer = getattr(self.pipeline, name)
            most = self.form.tokens if kind in TOKENIZERS else tokenizer.model_max_length
            lengths = map(len, tokenizer(list(prompts), verbose=False)["input_ids"])
            longer &= torch.tensor([length > most for length in lengths])
        return int(longer.sum())


def _read_encoder(folder: Path, kind: str, encoder: str, tokenizer: str) -> tuple[Any, Any]:
    """Return a text encoder and its tokenizer, whose words it knows."""
    import transformers

    place, words, local = folder / encoder, folder / tokenizer, {"local_files_only": True}
    with reading(words, f"a tokenizer of {kind}", SAVE_AGAIN):
        opened: Any = getattr(transformers, TOKENIZERS.get(kind, "CLIPTokenizer"))
        opened = opened.from_pretrained(words, **local)
    with reading(place, f"a {kind}", SAVE_AGAIN), torch.device("meta"):
        made: Any = getattr(transformers, kind)
        empty = made(made.config_class.from_pretrained(place, **local))
    most, number = empty.config.vocab_size, max(opened.get_vocab().values(), default=0)
    if number >= most:
        found = f"{number}, and the text encoder knows words up to {most - 1}"
        raise OcmError(f"{words}: gives the number {found}; expected parts of one pipeline")
    model = _read(empty, place, folders.TEXT_WEIGHTS, may_have_more=True)
    return model.eval().requires_grad_(False), opened


def _read(empty: Any, place: Path, stem: str, may_have_more: bool = False, **options: Any) -> Any:
    """Load weights that fit the configuration; `empty` is the model on the meta device."""
    files = folders.weight_files(place, stem)
    for file in files:  # each by name: the libraries do not say which one is damaged
        with reading(file, "a whole safetensors file", SAVE_AGAIN), safe_open(file, "pt") as opened:
            for key in opened.keys():  # noqa: SIM118  # not a dict
                refuse_not_finite({key: opened.get_tensor(key)}, file, SAVE_AGAIN)
    refuse_larger(empty, place)
    named = files[0].name.removeprefix(stem).removesuffix(".safetensors").strip(".") or None
    options["variant"] = named if len(files) == 1 else None
    options |= dict.fromkeys(("use_safetensors", "local_files_only", "output_loading_info"), True)
    with reading(place, f"a {type(empty).__name__}", SAVE_AGAIN):
        model, report = empty.from_pretrained(place, **options)
        if may_have_more:  # older text encoders hold tables that are computed now
            report = {what: report[what] for what in ("missing_keys", "mismatched_keys")}
        if problems := [f"{what}: {list(keys)[:3]}" for what, keys in report.items() if keys]:
            raise ValueError(f"the weights do not fit config.json: {'; '.join(problems)}")
    return model.float()
