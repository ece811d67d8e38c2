"""`fetch`: from a published file to safetensors with this project's keys, every step checked.

A file that is there is taken, any other downloaded; then its first bytes and digest are checked,
the restricted unpickler opens it, its layout is undone, and keys, shapes and dtypes are compared
with the network. A download that fails a check is removed; a file put there by hand is not.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
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
from ocm_core.io.digests import digests_of, sha256_of
from ocm_core.io.download import ByteProgress, download
from ocm_core.io.fetched import removed_if_refused
from ocm_core.io.formats import refuse_damaged_zip
from ocm_core.io.lock import FileRecord, Lock
from ocm_core.io.unpickle import open_restricted, refuse_other_formats
from ocm_core.io.urls import redacted
from ocm_core.networks.keys import load_published, published_keys

WEIGHTS = "weights.safetensors"
PROVENANCE = "provenance"  # the metadata entry of the safetensors file

CheckpointProvenance = dict[str, str | int | bool | None]


def fetch(
    checkpoint: Checkpoint,
    folder: Path,
    lock: Lock,
    *,
    network: ScoreNetwork | None = None,
    file: str | None = None,
    url: str | None = None,
    origin: str | None = None,
    target: Path | None = None,
    expect: str | None = None,
    progress: ByteProgress | None = None,
) -> CheckpointProvenance:
    """Write the weights to `target`, and return where they come from.

    `file` picks one of several published files, `url` is another address of it, and `origin` what
    is said of an address that will be another one tomorrow; `expect` is the sha256 that the file
    must have, where the caller knows it and the authors have published none. Keys and shapes must
    be those of `network`: the published one unless another is given. A file that is in `folder`
    already is not downloaded, and the provenance that is returned is the same then.
    """
    source = checkpoint.source(file or (None if url else _placed(checkpoint, folder)))
    path = folder / source.file
    by_hand = path.exists()
    if path.is_dir():
        raise OcmError(f"{path}: expected a file, found a folder; {source.remedy(path)}")
    sha256 = sha256_of(path) if by_hand else _download(source, path, url, progress)
    found = FileRecord(sha256, path.stat().st_size)
    with removed_if_refused([] if by_hand else [path]):
        content = _opened(checkpoint, source, path, found, lock, expect)
        weights = _checked(network or empty_network(checkpoint), source, path, content)
    address = origin or url or source.url
    provenance = _provenance(checkpoint, source, found, address and redacted(address))
    _write(weights, target or folder / WEIGHTS, provenance)
    lock.record(_key(checkpoint, source), found)
    return provenance


def without_digest(checkpoint: Checkpoint, lock: Lock) -> set[str]:
    """Its files of which no digest is known, neither published nor recorded."""
    return {source.file for source in checkpoint.sources if _on_trust(checkpoint, source, lock)}


def empty_network(checkpoint: Checkpoint) -> ScoreNetwork:
    """The published network on the meta device, without memory for its weights."""
    with torch.device("meta"):
        return checkpoint.network()


def published_state(network: ScoreNetwork, state: Mapping[str, Tensor]) -> StateDict:
    """The tensors under this project's keys; all published ones must be there, and no others."""
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


def _download(
    source: CheckpointSource, path: Path, url: str | None, progress: ByteProgress | None
) -> str:
    address = url or source.url
    if address is None:
        raise OcmError(f"{path}: no direct address is known; {source.remedy(path)}")
    return download(address, path, source.remedy(path), progress)


def _opened(
    checkpoint: Checkpoint,
    source: CheckpointSource,
    path: Path,
    found: FileRecord,
    lock: Lock,
    expect: str | None,
) -> object:
    """Check the digests, then open the file with the restricted unpickler.

    A file of which nobody knows the digest must at least agree with its own CRCs.
    """
    remedy = source.remedy(path)
    refuse_other_formats(path, remedy)
    if expect not in (None, found.sha256):
        raise OcmError(f"{path}: expected sha256 {expect}, found {found.sha256}; {remedy}")
    _check_published_digests(source, path, found)
    lock.check(_key(checkpoint, source), found, path, remedy)
    if _on_trust(checkpoint, source, lock):
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


def _check_published_digests(source: CheckpointSource, path: Path, found: FileRecord) -> None:
    facts: list[tuple[str, object, object]] = [
        ("bytes", source.bytes, found.bytes),
        ("sha256", source.sha256, found.sha256),
        ("md5", source.md5, digests_of(path, "md5")[0] if source.md5 else None),
    ]
    for what, expected, value in facts:
        if expected is not None and expected != value:
            raise OcmError(
                f"{path}: expected {what} {expected} as published, found {value};"
                f" {source.remedy(path)}"
            )


def _write(tensors: StateDict, target: Path, provenance: CheckpointProvenance) -> None:
    with replacing(target) as temporary:
        save_file(tensors, temporary, metadata={PROVENANCE: json.dumps(provenance)})


def _provenance(
    checkpoint: Checkpoint, source: CheckpointSource, found: FileRecord, url: str | None
) -> CheckpointProvenance:
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


def _on_trust(checkpoint: Checkpoint, source: CheckpointSource, lock: Lock) -> bool:
    published = source.sha256 or source.md5
    return published is None and lock.recorded(_key(checkpoint, source)) is None


def _key(checkpoint: Checkpoint, source: CheckpointSource) -> str:
    return f"{checkpoint.name}/{source.file}"


def describe(provenance: Mapping[str, Any]) -> str:
    """Digest, address and licence in a line."""
    where = provenance["url"] or provenance["page"]
    licence = provenance["licence"] or "none found"
    return f"sha256 {provenance['sha256']} ({where}); licence of the weights: {licence}"
