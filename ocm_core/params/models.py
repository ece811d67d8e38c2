"""What a model of one's own says of itself: read from its folder when an experiment is composed.

The resolved file then holds the model's configuration, its schedule, and a digest of its files.
"""

from __future__ import annotations

from pathlib import Path

from ocm_core.checkpoints.diffusers_folder import ModelDescription, describe, existing_folder
from ocm_core.checkpoints.weight_files import CONFIG, digest_of, weight_files
from ocm_core.errors import OcmError
from ocm_core.io.reading import read_json_object
from ocm_core.params.document import Tree

FAMILY, FROM_MODEL, FOLDER = "diffusers", "model", "folder"


def complete(tree: Tree, file: Path) -> Tree:
    """Fill in what `network`, `schedule: {kind: model}` and the autoencoder leave to folders."""
    network = tree.get("network") or {}
    if network.get("family") != FAMILY:
        if (tree.get("schedule") or {}).get("kind") == FROM_MODEL:
            raise OcmError(f"{file}: schedule.kind: 'model' needs network.family: {FAMILY}")
        return tree
    try:
        described = describe(_path(network.get("path"), "network.path"))
        tree = {**tree, "network": _network(tree, described)}
        if (tree.get("schedule") or {}).get("kind") == FROM_MODEL:
            tree["schedule"] = dict(described.schedule)
        return _with_text(_with_vae(tree), described)
    except OcmError as error:
        raise OcmError(f"{file}: {error}") from None


def model_files(tree: Tree) -> list[Path]:
    """The files outside `params/` that an experiment is composed from."""
    network, vae = tree.get("network") or {}, _vae(tree)
    files: list[Path] = []
    if network.get("family") == FAMILY:
        described = describe(_path(network.get("path"), "network.path"))
        files += [*described.files, described.scheduler_file]
        files += described.text.files if described.text else []
    if vae.get("origin") == FOLDER:
        files += _vae_files(_path(vae.get("path"), "encode.latent.vae.path"))
    return files


def _network(tree: Tree, described: ModelDescription) -> Tree:
    """A caption is a class of its own, and behind the last of them comes the empty prompt."""
    network: Tree = tree["network"]
    captions = (tree.get("data") or {}).get("classes") if described.text else None
    own = {key: value for key, value in network.items() if value is not None}
    known = {
        "prediction": described.prediction,
        "classes": captions or described.classes,
        "null_class": captions or described.null_class,
    }
    read = {"config": dict(described.config), "digest": described.digest}
    return {**network, **known, **own, **read}


def _with_vae(tree: Tree) -> Tree:
    vae = _vae(tree)
    if vae.get("origin") != FOLDER:
        return tree
    files = _vae_files(_path(vae.get("path"), "encode.latent.vae.path"))
    place, remedy = files[0].parent, "save it again with save_pretrained"
    read = {"config": read_json_object(files[0], remedy), "digest": digest_of(place, files)}
    latent = {**tree["encode"]["latent"], "vae": {**vae, **read}}
    return {**tree, "encode": {**tree["encode"], "latent": latent}}


def _with_text(tree: Tree, described: ModelDescription) -> Tree:
    """The model's own text encoder: embeddings of captions are stored beside the latents."""
    latent, text = (tree.get("encode") or {}).get("latent"), described.text
    if latent is None or text is None:
        return tree
    read = {"path": str(text.folder), "digest": text.digest, "tokens": text.tokens}
    latent = {**latent, "text": {**read, "width": text.width}}
    return {**tree, "encode": {**tree["encode"], "latent": latent}}


def _vae(tree: Tree) -> Tree:
    latent = (tree.get("encode") or {}).get("latent") or {}
    return dict(latent.get("vae") or {})


def _vae_files(folder: str) -> list[Path]:
    place = existing_folder(folder) / "vae"
    if not (place / CONFIG).is_file():
        raise OcmError(f"{place / CONFIG}: no such file; expected a pipeline with an autoencoder")
    return [place / CONFIG, *weight_files(place)]


def _path(path: object, key: str) -> str:
    if not isinstance(path, str):
        raise OcmError(f"{key}: {path!r}; expected the folder that save_pretrained wrote")
    return path
