"""The covariance heads of a denoiser, saved to one safetensors file and loaded again.

Tensors have the name of their method as a prefix. Link functions (from the raw output to a
covariance) and the digest of the model's weights are metadata; shapes tell the kind of head.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import cast

import torch
from pydantic import TypeAdapter
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from ocm_core.covariance.learned import LINKS, CovarianceHead
from ocm_core.diffusion.denoiser import Denoiser
from ocm_core.diffusion.score_network import ScoreNetwork
from ocm_core.errors import OcmError
from ocm_core.io.atomic import replacing
from ocm_core.io.reading import reading
from ocm_core.networks.converted import unconverted
from ocm_core.networks.keys import export_published

_LINKS, _BASELINE, _NET = "links", "baseline", "net."
_MODEL = "model"  # the digest of its weights; files of the first release have none
_AGAIN = "write it again with `save_heads`"


def save_heads(denoiser: Denoiser, path: str | Path) -> None:
    """Write all heads of the denoiser to one file."""
    heads = cast(Mapping[str, CovarianceHead], denoiser.heads)
    if not heads:
        raise OcmError(f"{path}: this denoiser has no heads to save; train one first")
    tensors = dict[str, Tensor]()
    for label, head in heads.items():
        state = head.state_dict().items()
        tensors |= {f"{label}.{name}": tensor.contiguous() for name, tensor in state}
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
    with reading(path, "a file of heads", _AGAIN), safe_open(path, "pt") as file:
        metadata = file.metadata() or {}
        links = TypeAdapter(dict[str, str]).validate_json(metadata[_LINKS])
        tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
        if strange := set(links.values()) - LINKS.keys():
            raise ValueError(f"unknown links {', '.join(strange)}")
    trained_on, found = metadata.get(_MODEL), weights_digest(denoiser.network)
    if trained_on not in (None, found):
        kind = type(unconverted(denoiser.network)).__name__
        text = f"were trained on the weights {trained_on:.16}…, and this {kind} has {found:.16}…"
        remedy = "load the model that they were trained on, or train heads on this one"
        raise OcmError(f"{path}: its heads {text}: it was written for another network; {remedy}")
    own = tuple(f"{label}.{_NET}" for label in links)
    baselines = {f"{label}.{_BASELINE}" for label in links}
    if strays := [key for key in tensors if key not in baselines and not key.startswith(own)]:
        raise OcmError(f"{path}: {strays[0]} belongs to no head of {', '.join(links)}; {_AGAIN}")
    heads: dict[str, nn.Module] = dict(denoiser.heads)
    for label, link in links.items():
        prefix = f"{label}.{_NET}"
        weights = {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}
        baseline = tensors.get(f"{label}.{_BASELINE}")  # c̄_t for t = 0 … T
        times = denoiser.schedule.steps + 1
        expected = baseline is None or (baseline.shape == (times,) and baseline.is_floating_point())
        if baseline is not None and not expected:
            found = f"found {baseline.dtype} of shape {tuple(baseline.shape)}"
            where = f"{path}: expected a baseline for each of {times} timesteps, {found}"
            raise OcmError(f"{where}: the file was written for another schedule")
        net = denoiser.network.make_head(kind_of(denoiser.network, weights, path))
        net.load_state_dict(weights)
        head = CovarianceHead(net, baseline, link).to(next(denoiser.network.parameters()).device)
        heads[label] = head.eval().requires_grad_(False)
    return replace(denoiser, heads=heads)


def kind_of(network: ScoreNetwork, tensors: Mapping[str, Tensor], where: object = "head") -> str:
    """Return the kind of head of this network whose tensors have these names and shapes."""
    shapes = {key: tensor.shape for key, tensor in tensors.items()}
    for kind in network.head_kinds:
        head = network.make_head(kind).state_dict()
        if {key: tensor.shape for key, tensor in head.items()} == shapes:
            return kind
    known = f"{type(network).__name__} ({', '.join(network.head_kinds)})"
    raise OcmError(f"{where}: no head of {known} has these tensors: written for another network")
