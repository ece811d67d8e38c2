"""Fetch the published autoencoders at revisions that public projects pin, and check them."""

import json
import shutil
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ocm_core.checkpoints.diffusers_folder import digest_of, weight_files
from ocm_core.errors import OcmError, unknown
from ocm_core.io.atomic import replacing
from ocm_core.io.checksums import sha256_of
from ocm_core.io.fetch import Lock, PublishedFile, fetched, redacted
from ocm_core.latents.vae import CONFIG, WEIGHTS, Vae, save_folder

VaeProvenance = dict[str, str | dict[str, str]]


@dataclass(frozen=True)
class PublishedVae:
    """A published autoencoder: two files at a revision of a repository."""

    name: str
    repository: str
    revision: str
    sha256: dict[str, str | None]  # by file; None where it is not published
    licence: str = "MIT"

    @property
    def address(self) -> str:
        """The folder of the files."""
        return f"https://huggingface.co/{self.repository}/resolve/{self.revision}"

    @property
    def files(self) -> list[PublishedFile]:
        """Configuration and weights."""
        page = f"https://huggingface.co/{self.repository}"
        return [
            PublishedFile(file=file, page=page, url=f"{self.address}/{file}", sha256=sha256)
            for file, sha256 in self.sha256.items()
        ]


_PUBLISHED = (
    PublishedVae(
        name="sd-vae-ft-ema",
        repository="stabilityai/sd-vae-ft-ema",
        revision="f04b2c4b98319346dad8c65879f680b1997b204a",
        sha256={CONFIG: None, WEIGHTS: None},
    ),
    PublishedVae(
        name="sd-vae-ft-mse",
        repository="stabilityai/sd-vae-ft-mse",
        revision="31f26fdeee1355a5c34592e401dd41e45d25a493",
        sha256={
            CONFIG: "92d3dfb746fca211a2c9e019e285f8597412211728dce3c5bcf4eda0f2d62e7e",
            WEIGHTS: "a1d993488569e928462932c8c38a0760b874d166399b14414135bd9c42df5815",
        },
    ),
)
VAES = {vae.name: vae for vae in _PUBLISHED}


def vae_named(name: str) -> PublishedVae:
    """Return the autoencoder of that name."""
    if name not in VAES:
        raise OcmError(f"autoencoder: {unknown(name, VAES)}")
    return VAES[name]


def fetch_vae(
    vae: PublishedVae,
    folder: Path,
    lock: Lock | None,
    *,
    target: Path,
    expected: Mapping[str, Any],
    url: str | None = None,
) -> VaeProvenance:
    """Copy configuration and weights to `target`, and return their provenance.

    Files in `folder` are taken, others downloaded; `expected` are values of the configuration.
    """
    address, sha256 = url or vae.address, {}
    with ExitStack() as files:
        for source in vae.files:
            opened = fetched(source, folder / source.file, lock, f"{address}/{source.file}")
            sha256[source.file] = files.enter_context(opened).sha256
        config = json.loads(json.dumps(dict(Vae.load(folder).model.config)))
        for key, value in expected.items():
            if config.get(key) != value:
                found = f"{key} is {config.get(key)}, and the experiment expects {value}"
                raise OcmError(f"{folder / CONFIG}: {found}; change the experiment")
    for file in sha256:
        with replacing(target / file) as temporary:
            shutil.copyfile(folder / file, temporary)
    about = {key: getattr(vae, key) for key in ("repository", "revision", "licence")}
    return {"autoencoder": vae.name, **about, "url": redacted(address), "sha256": sha256}


def copy_vae(folder: str, digest: str, target: Path) -> VaeProvenance:
    """Copy the autoencoder of a pipeline that diffusers wrote, in float32."""
    place = Path(folder) / "vae"
    files = [place / CONFIG, *weight_files(place)]
    if digest_of(place, files) != digest:
        raise OcmError(f"{place}: changed since the run began; start it again to use this one")
    vae = Vae.load(place)
    save_folder(vae.model, target, vae.scaling_factor)
    sha256 = {file.name: sha256_of(file) for file in files}
    return {"autoencoder": Path(folder).name, "url": folder, "sha256": sha256}
