"""Load the model and the text encoder in a folder that diffusers wrote, running nothing inside.

diffusers and transformers replace missing weights by random ones; here a folder whose weights do
not fit its configuration is refused. Half precision is read into float32.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self

import torch
from pydantic import TypeAdapter
from safetensors import safe_open
from torch import Tensor

from ocm_core.checkpoints import diffusers_folder as folders
from ocm_core.checkpoints.diffusers_folder import SAVE_AGAIN, ModelDescription
from ocm_core.diffusion import schedule as schedules
from ocm_core.diffusion.denoiser import Denoiser, TimeConvention
from ocm_core.diffusion.schedule import Schedule
from ocm_core.diffusion.score_network import ScoreNetwork
from ocm_core.errors import OcmError
from ocm_core.io.reading import reading
from ocm_core.networks.converted import denoiser_of
from ocm_core.networks.diffusers import PromptEmbeddings, new_model, wrapped
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


def denoiser_of_folder(network: ScoreNetwork, described: ModelDescription) -> Denoiser:
    """Return a denoiser with the schedule and the prediction of the folder's scheduler."""
    return trained_with(network, described.scheduler)


def trained_with(network: ScoreNetwork, scheduler: Mapping[str, Any]) -> Denoiser:
    """Return a denoiser, given the resolved configuration of the scheduler of its training."""
    prediction, data_range = folders.prediction_of(scheduler), folders.range_of(scheduler)
    return denoiser_of(network, schedule_of(scheduler), TIME, prediction, data_range)


def schedule_of(scheduler: Mapping[str, Any]) -> Schedule:
    """Return the schedule of a scheduler's resolved configuration."""
    keys = folders.schedule_keys(scheduler)
    return schedules.of_params(TypeAdapter(ScheduleParams).validate_python(keys))


@dataclass(frozen=True)
class TextEncoder:
    """The text encoder of a Stable-Diffusion pipeline, from prompts to embeddings."""

    model: Any  # transformers' CLIPTextModel
    tokenizer: Any

    @classmethod
    def load(cls, folder: str | Path, device: str | torch.device = "cpu") -> Self:
        """Load it from the folder of the pipeline, in float32."""
        if find_spec("transformers") is None:
            needed = "the package transformers: `pip install 'ocm-core[text]'`"
            raise OcmError(f"{folder}: its text encoder needs {needed}")
        import transformers

        place, words = Path(folder) / folders.ENCODER, Path(folder) / folders.TOKENIZER
        with reading(words, "a tokenizer of CLIP", SAVE_AGAIN):
            tokenizer = transformers.CLIPTokenizer.from_pretrained(words, local_files_only=True)
        with reading(place, f"a {folders.TEXT_CLASS}", SAVE_AGAIN), torch.device("meta"):
            config = transformers.CLIPTextConfig.from_pretrained(place, local_files_only=True)
            empty = transformers.CLIPTextModel(config)
        model = _read(empty, place, folders.TEXT_WEIGHTS, may_have_more=True)
        return cls(model.eval().requires_grad_(False).to(device), tokenizer)

    @torch.no_grad()
    def __call__(self, prompts: Sequence[str]) -> PromptEmbeddings:
        """Embed each prompt, padded or cut to the length that the model was trained with."""
        how = {"padding": "max_length", "truncation": True, "return_tensors": "pt"}
        how["max_length"] = self.tokenizer.model_max_length
        words = self.tokenizer(list(prompts), **how)
        used = getattr(self.model.config, "use_attention_mask", None)
        mask = words["attention_mask"].to(self.model.device) if used else None
        tokens, most = words["input_ids"], self.model.config.vocab_size
        if int(tokens.min()) < 0 or int(tokens.max()) >= most:
            found = f"{int(tokens.max())}, and the text encoder knows words up to {most - 1}"
            expected = "expected parts of one pipeline"
            raise OcmError(f"{folders.TOKENIZER}: gives the number {found}; {expected}")
        embeddings: Tensor = self.model(tokens.to(self.model.device), mask)[0]
        return embeddings.float()

    def cut(self, prompts: Sequence[str]) -> int:
        """Count the prompts that are longer than the model reads."""
        lengths = map(len, self.tokenizer(list(prompts), verbose=False)["input_ids"])
        return sum(length > self.tokenizer.model_max_length for length in lengths)


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
