"""Numbers of parameters of the published networks, beside those that the paper states."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import torch

from ocm_core.checkpoints.registry import Checkpoint
from ocm_core.networks.keys import count_values

MILLION = 1e6


class ParameterCounts(NamedTuple):
    name: str
    family: str
    head: str
    parameters: int
    parameters_with_head: int
    millions: float
    millions_with_head: float
    paper_millions: float
    paper_millions_with_head: float


def counts(checkpoint: Checkpoint) -> ParameterCounts:
    with torch.device("meta"):
        network = checkpoint.network()
        head = network.make_head(checkpoint.head)
    without = count_values(network)
    total = without + count_values(head)
    return ParameterCounts(
        checkpoint.name,
        checkpoint.family,
        checkpoint.head,
        without,
        total,
        round(without / MILLION, 2),
        round(total / MILLION, 2),
        checkpoint.paper_millions,
        checkpoint.paper_millions_with_head,
    )


def table(rows: Iterable[ParameterCounts]) -> str:
    lines = [f"{'':<14}{'family':<12}{'head':<9}{'M':>8}{'paper':>8}{'+ head':>9}{'paper':>8}"]
    lines += [
        f"{row.name:<14}{row.family:<12}{row.head:<9}{row.millions:>8.2f}{row.paper_millions:>8.2f}"
        f"{row.millions_with_head:>9.2f}{row.paper_millions_with_head:>8.2f}"
        for row in rows
    ]
    return "\n".join(lines)
