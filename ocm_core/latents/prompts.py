"""What a model is told of captions, which the stage `encode` writes beside the latents.

Row n is that of the n-th different caption of the data set, the last one the empty prompt's. It
holds all arrays of a prompt, flat and one after another; their names and shapes are an attribute of
the store. A row of Stable Diffusion takes 0.24 MB, one of its third version 5.5 MB, so that not
every table fits on a GPU.
"""

import logging
from math import prod
from pathlib import Path

import torch
from jaxtyping import Float32
from numpy import ndarray
from torch import Tensor, nn

from ocm_core.checkpoints.diffusers_folder import describe
from ocm_core.checkpoints.diffusers_models import TextEncoder
from ocm_core.datasets.base import DataSet, distinct
from ocm_core.errors import OcmError
from ocm_core.networks.diffusers import PromptArrays, PromptLabels, Prompts
from ocm_core.progress import Progress
from ocm_core.schema.block import require
from ocm_core.schema.experiment import LatentParams, TextParams
from ocm_core.store import writer
from ocm_core.store.reader import StoredSplit, store_path

NAME = "prompts"  # of the store
SHARD = 256  # rows that are written together
HELD = 2**30  # bytes of a table that is kept on the device
LOG = logging.getLogger("ocm")


def write_prompts(
    folder: Path, part: str, data: DataSet, latent: LatentParams, device: str, bar: Progress[range]
) -> int:
    """Write the rows of a part; those that an interrupted run has written stay."""
    text, size = require(latent.text), latent.batch_size
    captions = (caption for split in data.splits.values() for caption in split.captions or ())
    rows, encoder = [*distinct(captions), ""], open_encoder(text, device)
    plan = writer.StoreLayout(
        items=writer.share(part, len(rows), SHARD),
        shape=(text.numbers,),
        dtype="float32",
        chunk=1,  # because any row may be asked for
        shard=SHARD,
    )

    def read_shard(shard: range) -> dict[str, ndarray]:
        prompts = rows[shard.start : shard.stop]
        if cut := encoder.cut(prompts):
            LOG.warning("%d of %d captions are longer than the model reads", cut, len(prompts))
        starts = range(0, len(prompts), size)
        few = (encoder(prompts[at : at + size]).values() for at in starts)
        flat = [torch.cat([array.flatten(1).cpu() for array in arrays], 1) for arrays in few]
        return {"x": torch.cat(flat).numpy()}

    shapes = [[name, shape] for name, shape in text.arrays.items()]
    attrs = {"provenance": dict(data.provenance), "text_encoder": text.digest, "arrays": shapes}
    writer.write(store_path(folder, NAME), plan, read_shard, attrs, bar)
    return len(plan.items)


def prompt_table(stored: StoredSplit) -> nn.Module:
    """Return the table that labels of a network that takes text are rows of."""
    if stored.bytes > HELD:
        return StoredPrompts(stored)
    return Prompts(unflattened(torch.from_numpy(stored.all()), stored.attrs["arrays"]))


def unflattened(
    rows: Float32[Tensor, "prompt number"], shapes: list[tuple[str, list[int]]]
) -> PromptArrays:
    """Return the arrays that rows of the store hold."""
    parts = torch.split(rows, [prod(shape) for _, shape in shapes], dim=1)
    named = zip(shapes, parts, strict=True)
    return {name: part.reshape(-1, *shape) for (name, shape), part in named}


class StoredPrompts(nn.Module):
    """A table that stays on the disk; the host waits for the labels of every batch."""

    def __init__(self, stored: StoredSplit) -> None:
        super().__init__()
        self.stored = stored

    def forward(self, label: PromptLabels) -> PromptArrays:
        rows = torch.from_numpy(self.stored.read(label.cpu().numpy())).to(label.device)
        return unflattened(rows, self.stored.attrs["arrays"])


def open_encoder(text: TextParams, device: str) -> TextEncoder:
    """Open the text encoders that the parameters describe."""
    if require(describe(text.path).text).digest != text.digest:
        raise OcmError(f"{text.path}: the text encoder has changed since the run was planned")
    return TextEncoder.load(text.path, device)
