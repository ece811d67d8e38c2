"""Complete an experiment by what is known of its network: a published one, or a model's folder."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from ocm_core.checkpoints import diffusers_folder
from ocm_core.checkpoints.registry import checkpoint_named
from ocm_core.datasets import Data
from ocm_core.errors import OcmError
from ocm_core.io.reading import read_json_object
from ocm_core.networks import configuration, small
from ocm_core.networks.config import Small
from ocm_core.project import model_folder
from ocm_core.schema.experiment import FormulaSchedule

ParamTree = dict[str, Any]
_SMALL_VAE = {"block_out_channels": [8, 8, 16, 16], "layers_per_block": 1, "norm_num_groups": 4}


def block_at(tree: ParamTree, *keys: str) -> ParamTree:
    """Return a block of a tree of parameters; an empty one where there is none."""
    for key in keys:
        block = tree.get(key)
        tree = block if isinstance(block, dict) else {}
    return tree


def complete_from_folder(tree: ParamTree, network: ParamTree) -> None:
    """Read a model of one's own, its schedule, its autoencoder and its text encoder."""
    described = diffusers_folder.describe(_path(network, "network.path"))
    # a caption is a class of its own, and behind the last of them comes the empty prompt
    captions = block_at(tree, "data").get("classes") if described.text else None
    known = {
        "prediction": described.prediction,
        "range": diffusers_folder.range_of(described.scheduler),
        "classes": captions or described.classes,
        "null_class": captions or described.null_class,
    }
    read = {"config": dict(described.config), "digest": described.digest}
    network |= {**known, **_given(network), **read}
    if block_at(tree, "schedule").get("kind") == "model":
        tree["schedule"] = dict(described.schedule)
    latent = block_at(tree, "encode", "latent")
    if (vae := block_at(latent, "vae")).get("origin") == "folder":
        place = model_folder(Path(_path(vae, "encode.latent.vae.path"))) / "vae"
        config = place / diffusers_folder.CONFIG
        if not config.is_file():
            raise OcmError(f"{config}: no such file; expected a pipeline with an autoencoder")
        vae["config"] = read_json_object(config, "save it again with save_pretrained")
        files = [config, *diffusers_folder.weight_files(place)]
        vae["digest"] = diffusers_folder.digest_of(place, files)
    if latent and (text := described.text):
        shapes = {name: list(shape) for name, shape in text.arrays.items()}
        latent["text"] = {"path": str(text.folder), "digest": text.digest, "arrays": shapes}


def _path(block: ParamTree, key: str) -> str:
    if not isinstance(path := block.get("path"), str):
        raise OcmError(f"{key}: {path!r}; expected the folder that save_pretrained wrote")
    return path


def _given(block: ParamTree) -> ParamTree:
    return {key: value for key, value in block.items() if value is not None}


def complete_published(tree: ParamTree, network: ParamTree, choice: ParamTree) -> None:
    """Fill in what the registry knows of a checkpoint, and make random data for random weights."""
    entry = checkpoint_named(str(choice.get("name")))
    trained = FormulaSchedule(kind=entry.schedule, steps=entry.steps).model_dump()
    schedule = {**FormulaSchedule().model_dump(), **(tree.get("schedule") or {})}
    if schedule != trained:
        raise OcmError(f"{entry.name} was trained with schedule {trained}, found {schedule}")
    form, config = small(entry.family), configuration(entry.family, entry.config)
    known = [config, form.config]  # a preset may have written them out
    given = block_at(network, "config").items()
    own = {key: value for key, value in given if value not in [c.get(key) for c in known]}
    is_small = choice.get("size") == "small"
    config = {**config, **(form.config if is_small else {}), **own}
    if choice.get("origin") == "generated":
        _generate(tree, config.get("num_classes") or 0, form if is_small else None)
    facts = {"scores": ["pretrained"], "family": entry.family, "time": asdict(entry.time)}
    network |= {**facts, **_given(network), "config": config}


def _generate(tree: ParamTree, classes: int, form: Small | None) -> None:
    """Replace a published autoencoder and its images by random ones that fit the network."""
    sizes = {key: tree["data"][key] for key in ("train_size", "test_size") if key in tree["data"]}
    real = {key: value for key, value in tree["data"].items() if key not in sizes}
    side = form.side if form else TypeAdapter(Data).validate_python(real).shape[-1]
    vae = block_at(tree, "encode", "latent", "vae")
    if vae and vae.get("origin", "published") == "published":
        vae["origin"] = "generated"
        if form:
            vae["config"] = {**vae["config"], **_SMALL_VAE}
            side *= 2 ** (len(vae["config"]["block_out_channels"]) - 1)
    tree["data"] = {"kind": "generated", "side": side, "classes": classes, **sizes}
