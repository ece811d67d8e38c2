"""The text encoder of a Stable-Diffusion pipeline: prompts to embeddings, as diffusers has them.

It is transformers' own, which is an extra of this package (`text`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor

from ocm_core.checkpoints.text_folder import CLASS, ENCODER, TEXT_WEIGHTS, TOKENIZER
from ocm_core.checkpoints.weight_files import SAVE_AGAIN, weight_files
from ocm_core.compat import make_torchvision_importable
from ocm_core.errors import OcmError
from ocm_core.io.reading import reading
from ocm_core.networks.keys import refuse_larger
from ocm_core.networks.prompts import PromptEmbeddings


@dataclass(frozen=True)
class TextEncoder:
    model: Any  # transformers' CLIPTextModel
    tokenizer: Any

    @classmethod
    def load(cls, folder: str | Path, device: str | torch.device = "cpu") -> TextEncoder:
        """From the folder of the pipeline, in float32; nothing is run that is inside."""
        transformers = _transformers(folder)
        place, words = Path(folder) / ENCODER, Path(folder) / TOKENIZER
        files = weight_files(place, TEXT_WEIGHTS)
        for file in files:
            with reading(file, "a whole safetensors file", SAVE_AGAIN), safe_open(file, "pt") as f:
                f.keys()
        with reading(words, "a tokenizer of CLIP", SAVE_AGAIN):
            tokenizer = transformers.CLIPTokenizer.from_pretrained(words, local_files_only=True)
        with reading(place, f"a {CLASS}", SAVE_AGAIN):
            with torch.device("meta"):
                config = transformers.CLIPTextConfig.from_pretrained(place, local_files_only=True)
                refuse_larger(transformers.CLIPTextModel(config), place)
            model, report = transformers.CLIPTextModel.from_pretrained(
                place,
                use_safetensors=True,
                local_files_only=True,
                output_loading_info=True,
                variant=_variant(files),
            )
            problems = [*report["missing_keys"], *report["mismatched_keys"]]
            if problems:
                raise ValueError(f"the weights do not fit config.json: {problems[:3]}")
        return cls(model.float().eval().requires_grad_(False).to(device), tokenizer)

    @torch.no_grad()
    def __call__(self, prompts: Sequence[str]) -> PromptEmbeddings:
        """One for each, padded or cut to the length that the model was trained with."""
        words = self.tokenizer(
            list(prompts),
            padding="max_length",
            max_length=self.tokenizer.model_max_length,
            truncation=True,
            return_tensors="pt",
        )
        used = getattr(self.model.config, "use_attention_mask", None)
        mask = words["attention_mask"].to(self.model.device) if used else None
        numbers = self._known(words["input_ids"]).to(self.model.device)
        embeddings: Tensor = self.model(numbers, mask)[0]
        return embeddings.float()

    def _known(self, numbers: Tensor) -> Tensor:
        most = self.model.config.vocab_size
        if int(numbers.min()) < 0 or int(numbers.max()) >= most:
            raise OcmError(
                f"{TOKENIZER}: gives the number {int(numbers.max())}, and the text encoder knows"
                f" words up to {most - 1}; expected parts of one pipeline"
            )
        return numbers

    def cut(self, prompts: Sequence[str]) -> int:
        """How many are longer than the model reads."""
        lengths = map(len, self.tokenizer(list(prompts), verbose=False)["input_ids"])
        return sum(length > self.tokenizer.model_max_length for length in lengths)


def _transformers(folder: str | Path) -> Any:
    if find_spec("transformers") is None:
        raise OcmError(
            f"{folder}: its text encoder needs the package transformers: "
            "`pip install 'ocm-core[text]'`"
        )
    make_torchvision_importable()  # transformers imports it
    return import_module("transformers")


def _variant(files: list[Path]) -> str | None:
    name = files[0].name.removeprefix(TEXT_WEIGHTS).removesuffix(".safetensors").strip(".")
    return name or None if len(files) == 1 else None
