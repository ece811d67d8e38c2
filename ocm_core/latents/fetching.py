"""The published autoencoders, by pinned revision, and how they are fetched and checked.

place or download → look at the head → digest → keys and shapes → copy. Downloads that fail any
check are removed; files put there by hand are not. Revisions and digests are copied from public
projects that pin these files; a digest that none of them states is None, and the lock records it at
the first fetch.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ocm_core.errors import OcmError, unknown
from ocm_core.io.download import ByteProgress, download
from ocm_core.io.lock import Lock, Recorded
from ocm_core.latents.vae import CONFIG, WEIGHTS, Vae

_HUB = "https://huggingface.co"
Provenance = dict[str, str | dict[str, str]]


@dataclass(frozen=True, kw_only=True)
class PublishedVae:
    name: str
    repository: str
    revision: str
    licence: str
    sha256: dict[str, str | None]  # of each file, where it is known

    @property
    def address(self) -> str:
        return f"{_HUB}/{self.repository}/resolve/{self.revision}"

    def remedy(self, path: Path) -> str:
        return f"fetch it by hand from {self.address}/{path.name} and put it at {path}"


VAES = MappingProxyType(
    {
        vae.name: vae
        for vae in (
            PublishedVae(
                name="sd-vae-ft-ema",
                repository="stabilityai/sd-vae-ft-ema",
                revision="f04b2c4b98319346dad8c65879f680b1997b204a",
                licence="MIT",
                sha256={CONFIG: None, WEIGHTS: None},
            ),
            PublishedVae(
                name="sd-vae-ft-mse",
                repository="stabilityai/sd-vae-ft-mse",
                revision="31f26fdeee1355a5c34592e401dd41e45d25a493",
                licence="MIT",
                sha256={
                    CONFIG: "92d3dfb746fca211a2c9e019e285f8597412211728dce3c5bcf4eda0f2d62e7e",
                    WEIGHTS: "a1d993488569e928462932c8c38a0760b874d166399b14414135bd9c42df5815",
                },
            ),
        )
    }
)


def vae_named(name: str) -> PublishedVae:
    if name not in VAES:
        raise OcmError(f"autoencoder: {unknown(name, VAES)}")
    return VAES[name]


def fetch_vae(
    vae: PublishedVae,
    folder: Path,
    lock: Lock,
    *,
    target: Path,
    expected: Mapping[str, Any],
    url: str | None = None,
    progress: ByteProgress | None = None,
) -> Provenance:
    """Copy configuration and weights to `target`; `url` says where else the two files lie.

    `expected` is what an experiment was planned with: configuration keys that the file must agree
    with. Files that already lie in `folder` are taken as they are. What is returned depends on the
    files and the arguments, and not on how the files came there.
    """
    paths = [folder / CONFIG, folder / WEIGHTS]
    downloaded = [path for path in paths if not path.exists()]
    address = url or vae.address
    try:
        for path in downloaded:
            download(f"{address}/{path.name}", path, vae.remedy(path), progress)
        found = {path.name: _checked(vae, path, lock) for path in paths}
        _check_config(Vae.load(folder), expected, folder / CONFIG)
    except OcmError:
        for path in downloaded:
            path.unlink(missing_ok=True)
        raise
    for path in paths:
        _copy(path, target / path.name)
        lock.record(_key(vae, path), found[path.name])
    return {
        "autoencoder": vae.name,
        "repository": vae.repository,
        "revision": vae.revision,
        "licence": vae.licence,
        "url": address,
        "sha256": {name: recorded.sha256 for name, recorded in found.items()},
    }


def _checked(vae: PublishedVae, path: Path, lock: Lock) -> Recorded:
    """The digest, after a look at the head and a comparison with what is known of the file."""
    with path.open("rb") as file:
        if file.read(512).lstrip().startswith(b"<"):
            raise OcmError(
                f"{path}: found a web page (a sign-in or a notice, as a rule); {vae.remedy(path)}"
            )
        file.seek(0)
        found = Recorded(hashlib.file_digest(file, "sha256").hexdigest(), path.stat().st_size)
    expected = vae.sha256[path.name]
    if expected not in (None, found.sha256):
        raise OcmError(
            f"{path}: expected sha256 {expected} as published, found {found.sha256};"
            f" {vae.remedy(path)}"
        )
    lock.check(_key(vae, path), found, path, vae.remedy(path))
    return found


def _check_config(vae: Vae, expected: Mapping[str, Any], path: Path) -> None:
    found = json.loads(json.dumps(dict(vae.model.config)))
    for key, value in expected.items():
        if found.get(key) != value:
            raise OcmError(
                f"{path}: {key} is {found.get(key)}, and the experiment expects {value}; make its "
                "parameters those of the published autoencoder"
            )


def _key(vae: PublishedVae, path: Path) -> str:
    return f"{vae.name}/{path.name}"


def _copy(path: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f"{target.name}.tmp")
    try:
        shutil.copyfile(path, temporary)
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)
