"""The covariance heads of a denoiser, saved to one safetensors file and loaded again.

Weights and baselines have the name of their method as a prefix. The link function, from the raw
output to a covariance, and the digest of the model's weights are metadata; the kind of head follows
from the shapes of its tensors.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, cast

import torch
from pydantic import AfterValidator, TypeAdapter
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from ocm_core.covariance.learned import LINKS, CovarianceHead
from ocm_core.diffusion.denoiser import Denoiser
from ocm_core.diffusion.score_network import ScoreNetwork
from ocm_core.errors import OcmError, unknown
from ocm_core.io.atomic import replacing
from ocm_core.io.reading import reading
from ocm_core.networks.converted import unconverted
from ocm_core.networks.keys import export_published

_LINKS, _BASELINE, _NET = "links", "baseline", "net."
_MODEL = "model"  # the digest of its weights; files of the first release have none
_AGAIN = "write it again with `save_heads`"


def _known(link: str) -> str:
    if link not in LINKS:
        raise ValueError(f"link {unknown(link, LINKS)}")
    return link


Links = dict[str, Annotated[str, AfterValidator(_known)]]  # by label


def save_heads(denoiser: Denoiser, path: str | Path) -> None:
    """Write all heads of the denoiser to one file."""
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
    model = weights_digest(denoiser.network)
    with replacing(Path(path)) as temporary:
        save_file(tensors, temporary, metadata={_LINKS: json.dumps(links), _MODEL: model})


def weights_digest(network: ScoreNetwork) -> str:
    """Return a digest of the weights in bfloat16, the same for a model in either precision."""
    digest = hashlib.sha256()
    for key, tensor in sorted(export_published(unconverted(network)).items()):
        rounded = tensor.detach().to("cpu", torch.bfloat16).contiguous().view(torch.int16)
        digest.update(f"{key} {tuple(tensor.shape)}".encode())
        digest.update(rounded.numpy().tobytes())
    return digest.hexdigest()


def load_heads(denoiser: Denoiser, path: str | Path) -> Denoiser:
    """Return the denoiser with the heads of the file added, if they were trained on it."""
    path = Path(path)
    links, model, tensors = _read(path)
    _check_model(denoiser, model, path)
    if strays := [key for key in tensors if key.partition(".")[0] not in links]:
        raise OcmError(f"{path}: {strays[0]} belongs to no head of {', '.join(links)}; {_AGAIN}")
    heads: dict[str, nn.Module] = dict(denoiser.heads)
    for label, link in links.items():
        prefix = f"{label}."
        parts = {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}
        baseline = _baseline(parts.pop(_BASELINE, None), denoiser, path)
        head = CovarianceHead(_fitting(denoiser.network, parts, path), baseline, link)
        head.net.load_state_dict({k.removeprefix(_NET): v for k, v in parts.items()})
        device = next(denoiser.network.parameters()).device
        heads[label] = head.to(device).eval().requires_grad_(False)
    return replace(denoiser, heads=heads)


def _read(path: Path) -> tuple[dict[str, str], str | None, dict[str, Tensor]]:
    with reading(path, "a file of heads", _AGAIN), safe_open(path, "pt") as file:
        metadata = file.metadata() or {}
        links = TypeAdapter(Links).validate_json(metadata[_LINKS])
        tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
        return links, metadata.get(_MODEL), tensors


def _check_model(denoiser: Denoiser, trained_on: str | None, path: Path) -> None:
    if trained_on is None:
        return
    digest = weights_digest(denoiser.network)
    if trained_on == digest:
        return
    kind = type(unconverted(denoiser.network)).__name__
    raise OcmError(
        f"{path}: its heads were trained on the weights {trained_on[:16]}…, and this {kind}"
        f" has {digest[:16]}…: the file was written for another network; load the model that they"
        " were trained on, or train heads on this one"
    )


def _baseline(table: Tensor | None, denoiser: Denoiser, path: Path) -> Tensor | None:
    """Check c̄_t for t = 0 … T."""
    expected = (denoiser.schedule.steps + 1,)
    if table is not None and (table.shape != expected or not table.is_floating_point()):
        raise OcmError(
            f"{path}: expected a baseline for each of {expected[0]} timesteps, found {table.dtype}"
            f" of shape {tuple(table.shape)}: the file was written for another schedule"
        )
    return table


def _fitting(network: ScoreNetwork, tensors: Mapping[str, Tensor], path: Path) -> nn.Module:
    """Return a new head of the kind whose tensors have these names and shapes."""
    shapes = {key.removeprefix(_NET): value.shape for key, value in tensors.items()}
    for kind in network.head_kinds:
        net = network.make_head(kind)
        if _shapes(net) == shapes:
            return net
    raise OcmError(
        f"{path}: no head of {type(network).__name__} ({', '.join(network.head_kinds)}) has these"
        " tensors: the file was written for another network"
    )


def kind_of(network: ScoreNetwork, net: nn.Module) -> str:
    """Return the kind of head of this network that has such tensors."""
    kinds = (k for k in network.head_kinds if _shapes(network.make_head(k)) == _shapes(net))
    kind = next(kinds, None)
    if kind is None:
        raise OcmError(f"this head belongs to another network than {type(network).__name__}")
    return kind


def _shapes(net: nn.Module) -> dict[str, torch.Size]:
    return {key: value.shape for key, value in net.state_dict().items()}
