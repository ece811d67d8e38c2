"""The covariance heads and spectra of a denoiser, saved to one safetensors file and loaded again.

Tensors have the name of their method, or `+` and that of their basis, as a prefix. Link functions
(from the raw output to a covariance) and the digest of the model's weights are metadata; shapes
tell the kind of head.
"""

import hashlib
import json
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import cast

import torch
from pydantic import TypeAdapter
from safetensors import safe_open
from torch import Tensor, nn

from ocm_core.covariance.learned import LINKS, CovarianceHead
from ocm_core.diffusion.basis import Spectrum
from ocm_core.diffusion.denoiser import Denoiser
from ocm_core.diffusion.score_network import ScoreNetwork
from ocm_core.errors import OcmError
from ocm_core.io.atomic import write_tensors
from ocm_core.io.reading import reading
from ocm_core.networks.converted import unconverted
from ocm_core.networks.keys import export_published, refuse_not_finite

_LINKS, _NET, _TABLES = "links", "net.", {"baseline", "floor"}
_MODEL = "model"  # the digest of its weights; files of the first release have none
_AGAIN = "write it again with `save_heads`"


def save_heads(denoiser: Denoiser, path: str | Path) -> None:
    """Write all heads and spectra of the denoiser to one file."""
    heads = cast(Mapping[str, CovarianceHead], denoiser.heads)
    if not (heads or denoiser.spectra):
        raise OcmError(f"{path}: this denoiser has no heads to save; fit one first")
    tensors = dict[str, Tensor]()
    for label, head in heads.items():
        tensors |= {f"{label}.{name}": tensor for name, tensor in head.state_dict().items()}
    for basis, spectrum in denoiser.spectra.items():
        tensors |= {f"+{basis}.{name}": tensor for name, tensor in spectrum.tensors().items()}
    names = {link: name for name, link in LINKS.items()}
    links = {label: names[head.link] for label, head in heads.items()}
    metadata = {_LINKS: json.dumps(links), _MODEL: weights_digest(denoiser.network)}
    write_tensors(Path(path), tensors, metadata)


def weights_digest(network: ScoreNetwork) -> str:
    """Return a digest of the weights in bfloat16, the same for a model in either precision."""
    digest = hashlib.sha256()
    for key, tensor in sorted(export_published(unconverted(network)).items()):
        rounded = tensor.detach().to("cpu", torch.bfloat16).contiguous().view(torch.int16)
        digest.update(f"{key} {tuple(tensor.shape)}".encode())
        digest.update(rounded.numpy().tobytes())
    return digest.hexdigest()


def load_heads(denoiser: Denoiser, path: str | Path) -> Denoiser:
    """Return the denoiser with the file's heads and spectra added, if they are of its model."""
    with reading(path, "a file of heads", _AGAIN), safe_open(path, "pt") as file:
        metadata = file.metadata() or {}
        links = TypeAdapter(dict[str, str]).validate_json(metadata[_LINKS])
        tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
        if strange := set(links.values()) - LINKS.keys():
            raise ValueError(f"unknown links {', '.join(strange)}")
    refuse_not_finite(tensors, path, _AGAIN)
    trained_on, found = metadata.get(_MODEL), weights_digest(denoiser.network)
    if trained_on not in (None, found):
        kind = type(unconverted(denoiser.network)).__name__
        text = f"were trained on the weights {trained_on:.16}…, and this {kind} has {found:.16}…"
        remedy = "load the model that they were trained on, or train heads on this one"
        raise OcmError(f"{path}: its heads {text}: it was written for another network; {remedy}")
    parts: dict[str, dict[str, Tensor]] = defaultdict(dict)
    for key, tensor in tensors.items():
        label, _, name = key.partition(".")
        if label not in links and label[0] != "+":
            raise OcmError(f"{path}: {key} belongs to no head of {', '.join(links)}; {_AGAIN}")
        parts[label][name] = tensor
    device = str(next(denoiser.network.parameters()).device)
    heads, spectra = dict[str, nn.Module](denoiser.heads), dict(denoiser.spectra)
    with reading(path, "heads and spectra of this model", _AGAIN):
        for label, link in links.items():
            head = _head(denoiser, parts[label], link, path)
            heads[label] = head.to(device).eval().requires_grad_(False)
        for label in parts.keys() - links.keys():
            spectra[label[1:]] = Spectrum.of_tensors(parts[label], device)
    return replace(denoiser, heads=heads, spectra=spectra)


def _head(
    denoiser: Denoiser, state: Mapping[str, Tensor], link: str, path: object
) -> CovarianceHead:
    net = {k.removeprefix(_NET): v for k, v in state.items() if k.startswith(_NET)}
    times = denoiser.schedule.steps + 1
    for name in _TABLES & state.keys():  # over t = 0 … T
        table = state[name]
        if table.shape != (times,) or not table.is_floating_point():
            found = f"found {table.dtype} of shape {tuple(table.shape)}"
            where = f"{path}: expected a {name} for each of {times} timesteps, {found}"
            raise OcmError(f"{where}: the file was written for another schedule")
    kind, sizes = kind_of(denoiser.network, net, path)
    return CovarianceHead.of_state(denoiser.network.make_head(kind, **sizes), state, link)


def kind_of(
    network: ScoreNetwork, tensors: Mapping[str, Tensor], where: object = "head"
) -> tuple[str, dict[str, int]]:
    """Return kind and sizes of the network's head whose tensors have these names and shapes."""
    shapes = {key: tensor.shape for key, tensor in tensors.items()}
    pooled = shapes.get("pooled.bias", ())  # one for each number that the head gives
    sizes = {"outputs": pooled[0]} if len(pooled) == 1 and pooled[0] else {}
    for kind in network.head_kinds:
        head = network.make_head(kind, **sizes).state_dict()
        if {key: tensor.shape for key, tensor in head.items()} == shapes:
            return kind, sizes
    known = f"{type(network).__name__} ({', '.join(network.head_kinds)})"
    raise OcmError(f"{where}: no head of {known} has these tensors: written for another network")
