"""The covariance heads of a denoiser, saved to one safetensors file and loaded again.

Weights and baselines have the name of their method as a prefix. The link function, from the raw
output to a covariance, is metadata; the kind of head follows from the shapes of its tensors.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import cast

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from ocm_core.covariance.learned import LINKS, CovarianceHead
from ocm_core.diffusion.denoiser import Denoiser
from ocm_core.diffusion.score_network import ScoreNetwork
from ocm_core.errors import OcmError
from ocm_core.io.atomic import replacing

_LINKS = "links"


def save_heads(denoiser: Denoiser, path: Path) -> None:
    heads = cast(Mapping[str, CovarianceHead], denoiser.heads)
    if not heads:
        raise OcmError(f"{path}: this denoiser has no heads to save; train one first")
    tensors = {
        f"{label}.{name}": tensor.contiguous()
        for label, head in heads.items()
        for name, tensor in head.state_dict().items()
    }
    names = {link: name for name, link in LINKS.items()}
    links = {label: names[head.link] for label, head in heads.items()}
    with replacing(path) as temporary:
        save_file(tensors, temporary, metadata={_LINKS: json.dumps(links)})


def load_heads(denoiser: Denoiser, path: Path) -> Denoiser:
    """The denoiser with the heads of the file added to its own."""
    links, tensors = _read(path)
    heads: dict[str, nn.Module] = dict(denoiser.heads)
    for label, link in links.items():
        prefix = f"{label}."
        own = {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}
        head = CovarianceHead(_fitting(denoiser.network, own, path), own.get("baseline"), link)
        head.load_state_dict(own)
        device = next(denoiser.network.parameters()).device
        heads[label] = head.to(device).eval().requires_grad_(False)
    return replace(denoiser, heads=heads)


def _read(path: Path) -> tuple[dict[str, str], dict[str, Tensor]]:
    try:
        with safe_open(path, "pt") as file:
            links = json.loads((file.metadata() or {})[_LINKS])
            return links, {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError, KeyError) as error:
        raise OcmError(
            f"{path}: no file of heads ({error}); expected one that `save_heads` wrote"
        ) from None


def _fitting(network: ScoreNetwork, tensors: Mapping[str, Tensor], path: Path) -> nn.Module:
    """A new head of the kind whose tensors have these names and shapes."""
    found = {key: value.shape for key, value in tensors.items() if key.startswith("net.")}
    for kind in network.head_kinds:
        net = network.make_head(kind)
        if {f"net.{key}": value.shape for key, value in net.state_dict().items()} == found:
            return net
    raise OcmError(
        f"{path}: no head of {type(network).__name__} ({', '.join(network.head_kinds)}) has these"
        " tensors: the file was written for another network"
    )
