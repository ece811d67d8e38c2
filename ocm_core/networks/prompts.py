"""The embeddings of prompts that a network is conditional on, looked up by a whole number.

So a prompt is a label like any other: the number of its row. The last row is the empty prompt's,
which stands for "no label".
"""

from __future__ import annotations

from jaxtyping import Float32, Int
from torch import Tensor, nn

PromptEmbeddings = Float32[Tensor, "prompt token width"]
PromptLabels = Int[Tensor, " batch"]


class Prompts(nn.Module):
    """In memory, on the device of the network; no part of its weights."""

    embeddings: Tensor

    def __init__(self, embeddings: PromptEmbeddings) -> None:
        super().__init__()
        self.register_buffer("embeddings", embeddings, persistent=False)

    def forward(self, label: PromptLabels) -> PromptEmbeddings:
        return self.embeddings[label]
