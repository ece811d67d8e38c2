"""Convert a published checkpoint to safetensors with this project's keys, every step checked."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ocm_core.checkpoints.registry import LAYOUTS, Checkpoint
from ocm_core.diffusion.score_network import ScoreNetwork
from ocm_core.errors import OcmError
from ocm_core.io.atomic import write_tensors
from ocm_core.io.fetch import Lock, fetched, redacted
from ocm_core.io.reading import open_restricted
from ocm_core.networks.keys import export_published, import_published, refuse_not_finite

WEIGHTS = "weights.safetensors"
PROVENANCE = "provenance"  # the metadata entry of the safetensors file
SHOWN = 6

CheckpointProvenance = dict[str, str | int | bool | None]


def fetch(
    checkpoint: Checkpoint,
    folder: Path,
    lock: Lock | None,
    *,
    network: ScoreNetwork | None = None,  # whose keys the file must have; None: the published one
    file: str | None = None,  # one of several published files
    url: str | None = None,  # another address of the file
    origin: str | None = None,  # what the provenance says in place of the address
    target: Path | None = None,
    sha256: str | None = None,  # the digest that the file must have, if the caller knows it
) -> CheckpointProvenance:
    """Write the weights of the file in `folder`, or of a download; return their provenance."""
    if file is None and url is None:
        file = next((s.file for s in checkpoint.sources if (folder / s.file).exists()), None)
    source = checkpoint.source(file)
    source, path = replace(source, sha256=sha256 or source.sha256), folder / source.file
    if network is None:
        with torch.device("meta"):
            network = checkpoint.network()
    with fetched(source, path, lock, url) as record:
        remedy = source.remedy(path)
        state = extract(source.layout, open_restricted(path, remedy), path, remedy)
        weights = import_published(network, state, path, remedy)
        for name, expected in export_published(network).items():
            if (found := state[name].dtype) != expected.dtype:
                raise OcmError(f"{path}: {name} is {found} instead of {expected.dtype}; {remedy}")
        refuse_not_finite(state, path, remedy)
        provenance: CheckpointProvenance = {
            "checkpoint": checkpoint.name,
            "file": source.file,
            "sha256": record.sha256,
            "bytes": record.bytes,
            "layout": source.layout,
            "ema": source.ema,
            "licence": source.licence,
            "page": source.page,
            "url": redacted(address) if (address := origin or url or source.url) else None,
        }
        metadata = {PROVENANCE: json.dumps(provenance)}
        write_tensors(target or folder / WEIGHTS, weights, metadata)
    return provenance


def describe(provenance: Mapping[str, Any]) -> str:
    """Return digest, address and licence in a line."""
    where = provenance["url"] or provenance["page"]
    licence = provenance["licence"] or "none found"
    return f"sha256 {provenance['sha256']} ({where}); licence of the weights: {licence}"


def extract(layout: str, content: object, path: Path, remedy: str) -> dict[str, Tensor]:
    """Return the weights in what the restricted unpickler read from the file `path`."""

    def refused(expected: str, found: object) -> OcmError:
        said = f"expected {expected} in {place or 'the file'}, found {_described(found)}"
        return OcmError(f"{path}: not of layout {layout!r}: {said}; {remedy}")

    place = ""
    for key in LAYOUTS[layout]:
        if isinstance(key, str) and not (isinstance(content, Mapping) and key in content):
            raise refused(f"the key {key!r}", content)
        if isinstance(key, int) and not (isinstance(content, list | tuple) and len(content) > 1):
            raise refused("a list that ends in the moving average", content)
        content, place = content[key], f"{place}[{key!r}]"  # type: ignore[index]
    if not isinstance(content, Mapping) or not content:
        raise refused("a flat dict of tensors", content)
    for key, tensor in content.items():
        if not isinstance(tensor, Tensor) or tensor.layout != torch.strided or tensor.is_meta:
            raise refused(f"a dense tensor as {key!r}", tensor)
        if tensor.is_nested or tensor.is_quantized:
            raise refused(f"{key!r} neither nested nor quantised", tensor)
    starts = [value.untyped_storage().data_ptr() for value in content.values() if value.numel()]
    if len(set(starts)) < len(starts):  # safetensors could not say so
        raise refused("a flat dict of tensors, each with values of its own", content)
    return {str(key): tensor for key, tensor in content.items()}


def _described(content: object) -> str:
    kind, entries = type(content).__name__, list[str]()
    if isinstance(content, Mapping):
        kind, entries = "dict", [str(key) for key in content]
    elif isinstance(content, list | tuple):
        entries = [type(item).__name__ for item in content]
    return f"a {kind} of {len(entries)}: {', '.join(entries[:SHOWN])}" if entries else f"a {kind}"
