"""Convert a published checkpoint to safetensors with this project's keys, every step checked.

After the digests, the restricted unpickler opens the file, its layout is undone, and keys, shapes,
dtypes and values are compared with what the network expects.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from ocm_core.checkpoints.layouts import StateDict, extract, layout_named
from ocm_core.checkpoints.registry import Checkpoint, CheckpointSource
from ocm_core.diffusion.score_network import ScoreNetwork
from ocm_core.errors import OcmError
from ocm_core.io.atomic import replacing
from ocm_core.io.checksums import FileRecord
from ocm_core.io.fetch import Lock, fetched, on_trust, redacted
from ocm_core.io.reading import open_restricted, refuse_damaged_zip, refuse_other_formats
from ocm_core.networks.keys import load_published, published_keys, refuse_not_finite

WEIGHTS = "weights.safetensors"
PROVENANCE = "provenance"  # the metadata entry of the safetensors file

CheckpointProvenance = dict[str, str | int | bool | None]


def fetch(
    checkpoint: Checkpoint,
    folder: Path,
    lock: Lock | None,
    *,
    network: ScoreNetwork | None = None,
    file: str | None = None,
    url: str | None = None,
    origin: str | None = None,
    target: Path | None = None,
    sha256: str | None = None,
) -> CheckpointProvenance:
    """Write the weights to `target`, and return their provenance.

    The file is taken from `folder` if it is there, and downloaded if not; the provenance is the
    same.

    Args:
        network: whose keys and shapes the file must have; by default the published one
        file: one of several published files
        url: another address of the file
        origin: what the provenance says in place of the address
        sha256: the digest that the file must have, if the caller knows it
    """
    source = checkpoint.source(file or (None if url else _placed(checkpoint, folder)))
    source = replace(source, sha256=sha256 or source.sha256)
    path = folder / source.file
    with fetched(source, path, lock, url) as record:
        content = _opened(source, path, on_trust(source, path, lock))
        weights = _checked(network or empty_network(checkpoint), source, path, content)
        address = origin or url or source.url
        provenance = _provenance(checkpoint, source, record, address and redacted(address))
        with replacing(target or folder / WEIGHTS) as temporary:
            save_file(weights, temporary, metadata={PROVENANCE: json.dumps(provenance)})
    return provenance


def empty_network(checkpoint: Checkpoint) -> ScoreNetwork:
    """Return the published network on the meta device, without memory for its weights."""
    with torch.device("meta"):
        return checkpoint.network()


def published_state(network: ScoreNetwork, state: Mapping[str, Tensor]) -> StateDict:
    """Return the tensors under this project's keys; refuse any that do not fit the network."""
    empty = network.to("meta")
    load_published(empty, {key: tensor.to("meta") for key, tensor in state.items()})
    expected = empty.state_dict()
    names = published_keys(empty)
    for key, name in names.items():
        if state[name].dtype != expected[key].dtype:
            raise OcmError(
                f"{name} is {state[name].dtype} instead of {expected[key].dtype};"
                " check that the file is the published one"
            )
    refuse_not_finite(state)
    return {key: state[name].contiguous() for key, name in names.items()}


def describe(provenance: Mapping[str, Any]) -> str:
    """Return digest, address and licence in a line."""
    where = provenance["url"] or provenance["page"]
    licence = provenance["licence"] or "none found"
    return f"sha256 {provenance['sha256']} ({where}); licence of the weights: {licence}"


def _placed(checkpoint: Checkpoint, folder: Path) -> str | None:
    files = (source.file for source in checkpoint.sources)
    return next((file for file in files if (folder / file).exists()), None)


def _opened(source: CheckpointSource, path: Path, trusted: bool) -> object:
    """Open the file; one with no known digest must at least agree with its own CRCs."""
    remedy = source.remedy(path)
    refuse_other_formats(path, remedy)
    if trusted:
        refuse_damaged_zip(path, remedy)
    return open_restricted(path, remedy, layout_named(source.layout).allowed)


def _checked(
    network: ScoreNetwork, source: CheckpointSource, path: Path, content: object
) -> StateDict:
    remedy = source.remedy(path)
    state = extract(source.layout, content, path, remedy)
    try:
        return published_state(network, state)
    except OcmError as error:
        raise OcmError(f"{path}: {error}; {remedy}") from None


def _provenance(
    checkpoint: Checkpoint, source: CheckpointSource, record: FileRecord, url: str | None
) -> CheckpointProvenance:
    return {
        "checkpoint": checkpoint.name,
        "file": source.file,
        "sha256": record.sha256,
        "bytes": record.bytes,
        "layout": source.layout,
        "ema": source.ema,
        "licence": source.licence,
        "page": source.page,
        "url": url,
    }
