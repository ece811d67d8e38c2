"""The files that `save_pretrained` writes for one part of a pipeline, and their digest."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from ocm_core.errors import OcmError
from ocm_core.io.digests import sha256_of
from ocm_core.io.reading import read_json_object, reading

CONFIG = "config.json"
WEIGHTS = "diffusion_pytorch_model"
SAVE_AGAIN = "save it again with save_pretrained(folder, safe_serialization=True)"


def weight_files(place: Path, stem: str = WEIGHTS) -> list[Path]:
    """The shards that the index names, the one file, or the only variant that there is."""
    index = place / f"{stem}.safetensors.index.json"
    if index.is_file():
        with reading(index, "an index of safetensors files", SAVE_AGAIN):
            named = read_json_object(index, SAVE_AGAIN)["weight_map"].values()
            files = [place / name for name in sorted(set(named))]
    else:
        whole = place / f"{stem}.safetensors"
        files = [whole] if whole.is_file() else sorted(place.glob("*.safetensors"))[:1]
    if not files:
        raise OcmError(f"{place}: no file named *.safetensors; {SAVE_AGAIN}")
    for file in files:
        if not file.is_file():
            raise OcmError(f"{file}: no such file, and {index.name} names it; {SAVE_AGAIN}")
    return files


def digest_of(place: Path, files: list[Path]) -> str:
    found = {file.relative_to(place).as_posix(): sha256_of(file) for file in files}
    return hashlib.sha256(json.dumps(found, sort_keys=True).encode()).hexdigest()
