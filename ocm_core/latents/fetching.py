"""The published autoencoders at pinned revisions, fetched and checked.

A file that is there is taken, any other downloaded; then digest, keys and shapes are checked, and
both files copied. A download that fails a check is removed; a file that was put there by hand is
not. Revisions and digests are copied from public projects that pin these files; where none states a
digest it is None, and the lock file records it at the first fetch.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ocm_core.checkpoints.weight_files import digest_of, weight_files
from ocm_core.errors import OcmError, unknown
from ocm_core.io.atomic import replacing
from ocm_core.io.digests import sha256_of
from ocm_core.io.download import ByteProgress, download, refuse_web_page
from ocm_core.io.fetched import removed_if_refused
from ocm_core.io.lock import FileRecord, Lock
from ocm_core.io.urls import redacted
from ocm_core.latents.vae import CONFIG, WEIGHTS, Vae, save_folder

_HUB = "https://huggingface.co"
VaeProvenance = dict[str, str | dict[str, str]]


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
) -> VaeProvenance:
    """Copy configuration and weights to `target`; `url` is another address of the two files.

    `expected` are the configuration keys of the experiment, with which the file must agree. Files
    that are in `folder` already are not downloaded, and the provenance that is returned is the same
    then.
    """
    paths = [folder / CONFIG, folder / WEIGHTS]
    downloaded = [path for path in paths if not path.exists()]
    address = url or vae.address
    with removed_if_refused(downloaded):
        for path in downloaded:
            download(f"{address}/{path.name}", path, vae.remedy(path), progress)
        found = {path.name: _checked(vae, path, lock) for path in paths}
        _check_config(Vae.load(folder), expected, folder / CONFIG)
    for path in paths:
        with replacing(target / path.name) as temporary:
            shutil.copyfile(path, temporary)
        lock.record(_key(vae, path), found[path.name])
    return {
        "autoencoder": vae.name,
        "repository": vae.repository,
        "revision": vae.revision,
        "licence": vae.licence,
        "url": redacted(address),
        "sha256": {name: recorded.sha256 for name, recorded in found.items()},
    }


def without_digest(vae: PublishedVae, lock: Lock) -> list[str]:
    """Its files of which no digest is known, neither published nor recorded."""
    unpublished = (name for name, sha256 in vae.sha256.items() if sha256 is None)
    return [name for name in unpublished if lock.recorded(_key(vae, Path(name))) is None]


def copy_vae(folder: str, digest: str, target: Path) -> VaeProvenance:
    """The autoencoder of a pipeline that diffusers wrote, in float32."""
    place = Path(folder) / "vae"
    files = [place / CONFIG, *weight_files(place)]
    if digest_of(place, files) != digest:
        raise OcmError(
            f"{place}: not the autoencoder that the parameters were composed with; run "
            "`ocm params --write` to use this one, or put the other one back"
        )
    vae = Vae.load(place)
    save_folder(vae.model, target, vae.scaling_factor)
    found = {file.name: sha256_of(file) for file in files}
    return {"autoencoder": Path(folder).name, "url": folder, "sha256": found}


def _checked(vae: PublishedVae, path: Path, lock: Lock) -> FileRecord:
    """The file's digest, if it is the published one and that of the lock file."""
    refuse_web_page(path, "a file of the autoencoder", vae.remedy(path))
    found = FileRecord.of(path)
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
