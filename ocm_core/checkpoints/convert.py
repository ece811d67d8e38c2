"""`fetch`: from a published file to safetensors with our keys, every step checked.

place or download → look at the head → digest → restricted unpickler → layout → keys, shapes and
dtypes → safetensors. A download that fails any check is removed; a file put there by hand is not.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from ocm_core.checkpoints.layouts import State, extract, layout_named
from ocm_core.checkpoints.registry import Checkpoint, Source
from ocm_core.diffusion.score_network import ScoreNetwork
from ocm_core.errors import OcmError
from ocm_core.io.download import ByteProgress, download
from ocm_core.io.lock import Lock, Recorded
from ocm_core.io.unpickle import open_restricted, refuse_other_formats
from ocm_core.networks.keys import load_published, published_keys

WEIGHTS = "weights.safetensors"
PROVENANCE = "provenance"  # the metadata entry of the safetensors file

Provenance = dict[str, str | int | bool | None]


def fetch(
    checkpoint: Checkpoint,
    folder: Path,
    lock: Lock,
    *,
    network: ScoreNetwork | None = None,
    file: str | None = None,
    url: str | None = None,
    target: Path | None = None,
    progress: ByteProgress | None = None,
) -> Provenance:
    """Write the weights to `target`; `file` picks a source, `url` says where else to get it.

    Keys and shapes must be those of `network`: the published one unless another is given.

    A file that already lies in `folder` is taken as it is. What is returned depends on the file and
    the arguments, and not on how the file came there.
    """
    source = checkpoint.source(file or (None if url else _placed(checkpoint, folder)))
    path = folder / source.file
    by_hand = path.exists()
    sha256 = _digest(path, "sha256") if by_hand else _download(source, path, url, progress)
    found = Recorded(sha256, path.stat().st_size)
    try:
        content = _opened(checkpoint, source, path, found, lock)
        weights = _checked(network or empty_network(checkpoint), source, path, content)
    except OcmError:
        if not by_hand:
            path.unlink()
        raise
    provenance = _provenance(checkpoint, source, found, url or source.url)
    _write(weights, target or folder / WEIGHTS, provenance)
    lock.record(_key(checkpoint, source), found)
    return provenance


def empty_network(checkpoint: Checkpoint) -> ScoreNetwork:
    """The published network without storage."""
    with torch.device("meta"):
        return checkpoint.network()


def published_state(network: ScoreNetwork, state: Mapping[str, Tensor]) -> State:
    """The same tensors under our keys; anything but exactly the published list is refused."""
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
    return {key: state[name].contiguous() for key, name in names.items()}


def _placed(checkpoint: Checkpoint, folder: Path) -> str | None:
    files = (source.file for source in checkpoint.sources)
    return next((file for file in files if (folder / file).exists()), None)


def _download(source: Source, path: Path, url: str | None, progress: ByteProgress | None) -> str:
    address = url or source.url
    if address is None:
        raise OcmError(f"{path}: no direct address is known; {source.remedy(path)}")
    return download(address, path, source.remedy(path), progress)


def _opened(
    checkpoint: Checkpoint, source: Source, path: Path, found: Recorded, lock: Lock
) -> object:
    """Digests first; then what the restricted unpickler makes of the file."""
    remedy = source.remedy(path)
    refuse_other_formats(path, remedy)
    _check_published_digests(source, path, found)
    lock.check(_key(checkpoint, source), found, path, remedy)
    return open_restricted(path, remedy, layout_named(source.layout).allowed)


def _checked(network: ScoreNetwork, source: Source, path: Path, content: object) -> State:
    remedy = source.remedy(path)
    state = extract(source.layout, content, path, remedy)
    try:
        return published_state(network, state)
    except OcmError as error:
        raise OcmError(f"{path}: {error}; {remedy}") from None


def _check_published_digests(source: Source, path: Path, found: Recorded) -> None:
    facts: list[tuple[str, object, object]] = [
        ("bytes", source.bytes, found.bytes),
        ("sha256", source.sha256, found.sha256),
        ("md5", source.md5, _digest(path, "md5") if source.md5 else None),
    ]
    for what, expected, value in facts:
        if expected is not None and expected != value:
            raise OcmError(
                f"{path}: expected {what} {expected} as published, found {value};"
                f" {source.remedy(path)}"
            )


def _write(tensors: State, target: Path, provenance: Provenance) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f"{target.name}.tmp")
    try:
        save_file(tensors, temporary, metadata={PROVENANCE: json.dumps(provenance)})
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


def _provenance(
    checkpoint: Checkpoint, source: Source, found: Recorded, url: str | None
) -> Provenance:
    return {
        "checkpoint": checkpoint.name,
        "file": source.file,
        "sha256": found.sha256,
        "bytes": found.bytes,
        "layout": source.layout,
        "ema": source.ema,
        "licence": source.licence,
        "page": source.page,
        "url": url,
    }


def _key(checkpoint: Checkpoint, source: Source) -> str:
    return f"{checkpoint.name}/{source.file}"


def _digest(path: Path, algorithm: str) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, algorithm).hexdigest()


def describe(provenance: Mapping[str, Any]) -> str:
    where = provenance["url"] or provenance["page"]
    licence = provenance["licence"] or "none found"
    return f"sha256 {provenance['sha256']} ({where}); licence of the weights: {licence}"
