"""A folder that plain diffusers opens: model, heads, scheduler, code, and a model card."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ocm_core.checkpoints.diffusers_models import TextEncoder
from ocm_core.covariance.learned import CovarianceHead
from ocm_core.errors import OcmError
from ocm_core.export.heads import component_of
from ocm_core.export.pipeline import CovariancePipeline
from ocm_core.export.scheduler import CovarianceScheduler
from ocm_core.io.atomic import room_for
from ocm_core.networks.diffusers import wrapped

CODE = '''"""Opened by DiffusionPipeline.from_pretrained(FOLDER, custom_pipeline=FOLDER)."""

from ocm_core.export import pipeline


class Pipeline(pipeline.CovariancePipeline):
    """Sampling with the covariance heads beside the model."""
'''


@dataclass(frozen=True)
class Card:
    """The contents of a model card."""

    title: str
    base: str
    licence: str | None
    trained_on: str
    method: str
    steps: int = 10
    call: str = "batch_size=4"  # of the example: what is asked for
    numbers: Mapping[str, float] = field(default_factory=dict)

    def text(self) -> str:
        """Return the card as Markdown with its header."""
        licence = self.licence or "unknown"
        return "\n".join(
            [
                "---",
                f"license: {licence}",
                "library_name: diffusers",
                "tags: [diffusion, covariance]",
                "---",
                f"# {self.title}",
                "",
                f"The model `{self.base}` as it was, and covariance heads (`{self.method}`) "
                f"trained on it with {self.trained_on}.",
                f"Licence of the base model: {licence}.",
                "",
                "```python",
                "from diffusers import DiffusionPipeline",
                "",
                'folder = "."  # this folder; the package ocm-core must be installed',
                "pipe = DiffusionPipeline.from_pretrained(",
                "    folder, custom_pipeline=folder, trust_remote_code=True",
                ")",
                f"images = pipe({self.call}, num_inference_steps={self.steps}).images",
                "```",
                *self._numbers(),
                "",
            ]
        )

    def _numbers(self) -> Sequence[str]:
        if not self.numbers:
            return []
        rows = [f"| {name} | {value:.4g} |" for name, value in self.numbers.items()]
        return ["", "| measure | value |", "| --- | --- |", *rows]


def save_pipeline(
    folder: str | Path,
    model: Any,
    scheduler: CovarianceScheduler,
    heads: Mapping[str, CovarianceHead],
    card: Card,
    vae: Any = None,
    text: TextEncoder | None = None,
) -> Path:
    """Everything, or nothing: the folder appears when it is complete."""
    target = Path(folder)
    if target.exists() and any(target.iterdir() if target.is_dir() else [target]):
        raise OcmError(f"{target}: there already; name a new folder, or remove it first")
    network = wrapped(model)
    component = None
    if heads:
        component = component_of(network, _config(model), heads)
    if text is not None:
        card = replace(card, call='prompt="…"')
    words = {} if text is None else {"text_encoder": text.model, "tokenizer": text.tokenizer}
    pipeline = CovariancePipeline(model, scheduler, component, vae, **words)
    target.parent.mkdir(parents=True, exist_ok=True)
    needed = sum(tensor.nbytes for tensor in network.state_dict().values())
    with room_for(target, needed), TemporaryDirectory(dir=target.parent) as scratch:
        made = Path(scratch) / "pipeline"
        pipeline.save_pretrained(made, safe_serialization=True)
        (made / "pipeline.py").write_text(CODE)
        (made / "README.md").write_text(card.text())
        if target.exists():
            target.rmdir()
        shutil.move(made, target)
    return target


def _config(model: Any) -> dict[str, Any]:
    own = {key: value for key, value in model.config.items() if not key.startswith("_")}
    return {"_class_name": type(model).__name__, **own}
