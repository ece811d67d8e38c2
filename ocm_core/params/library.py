"""What parameters leave to the library: options that it completes, and what it cannot do.

Covariance methods and kernels have options, the registry of checkpoints knows the published
networks, and a folder that diffusers wrote describes its model. Problems are lines that begin with
a key.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from ocm_core import covariance
from ocm_core.checkpoints import diffusers_folder
from ocm_core.checkpoints.registry import checkpoint_named
from ocm_core.datasets import Data
from ocm_core.diffusion import kernels
from ocm_core.errors import OcmError
from ocm_core.io.reading import read_json_object
from ocm_core.networks import configuration, small
from ocm_core.networks.config import Small
from ocm_core.params.document import Tree
from ocm_core.project import model_folder
from ocm_core.sampling.presets import PRESETS
from ocm_core.schema.experiment import (
    Experiment,
    FormulaSchedule,
    PresetParams,
    Sampler,
    SamplerParams,
    SolverParams,
)

_SMALL_VAE = {"block_out_channels": [8, 8, 16, 16], "layers_per_block": 1, "norm_num_groups": 4}


def complete(tree: Tree) -> Iterator[str]:
    """Fill in methods, and what a model's folder, the registry or a network's family know."""
    yield from _methods(_block(tree, "methods"))
    yield from _kernels(_block(_block(tree, "sample"), "samplers"))
    network = _block(tree, "network")
    from_folder = network.get("family") == "diffusers"
    if _block(tree, "schedule").get("kind") == "model" and not from_folder:
        yield "schedule.kind: 'model' needs network.family: diffusers"
    try:
        if from_folder:
            _from_folder(tree, network)
        elif network and network.get("family") != "mlp":
            if network.get("checkpoint"):
                network |= _published(tree, network, network["checkpoint"])
            given = network.get("config") or {}
            network["config"] = configuration(str(network.get("family")), given)
    except OcmError as error:
        yield str(error) if from_folder else f"network: {error}"


def _block(tree: Tree, key: str) -> Tree:
    block: Any = tree.get(key)
    return block if isinstance(block, dict) else {}


def _methods(methods: Tree) -> Iterator[str]:
    for label, given in methods.items():
        if not isinstance(given, dict | None):
            continue  # the schema refuses it
        options = dict(given or {})
        kind = options.pop("kind", label)
        own = {key: options.pop(key, None) for key in ("head", "init")}
        try:
            method = covariance.build(kind, **options)
        except OcmError as error:
            yield f"methods.{label}: {error}"
        else:
            methods[label] = {"kind": kind, "needs": method.needs, **own} | method.options


def _kernels(samplers: Tree) -> Iterator[str]:
    """Fill in the options of each sampler's kernel."""
    for label, sampler in samplers.items():
        if isinstance(sampler, dict) and sampler.get("kind") not in ("preset", "diffusers"):
            options = {k: v for k, v in sampler.items() if k not in SamplerParams.model_fields}
            try:
                sampler |= kernels.build(str(sampler.get("kind")), **options).model_dump()
            except OcmError as error:
                yield f"sample.samplers.{label}.{error}"


def _from_folder(tree: Tree, network: Tree) -> None:
    """Read a model of one's own, its schedule, its autoencoder and its text encoder."""
    described = diffusers_folder.describe(_path(network, "network.path"))
    latent = _block(_block(tree, "encode"), "latent")
    # a caption is a class of its own, and behind the last of them comes the empty prompt
    captions = _block(tree, "data").get("classes") if described.text else None
    known = {
        "prediction": described.prediction,
        "classes": captions or described.classes,
        "null_class": captions or described.null_class,
    }
    given = {key: value for key, value in network.items() if value is not None}
    read = {"config": dict(described.config), "digest": described.digest}
    network |= {**known, **given, **read}
    if _block(tree, "schedule").get("kind") == "model":
        tree["schedule"] = dict(described.schedule)
    if (vae := _block(latent, "vae")).get("origin") == "folder":
        place = model_folder(Path(_path(vae, "encode.latent.vae.path"))) / "vae"
        config = place / diffusers_folder.CONFIG
        if not config.is_file():
            raise OcmError(f"{config}: no such file; expected a pipeline with an autoencoder")
        vae["config"] = read_json_object(config, "save it again with save_pretrained")
        files = [config, *diffusers_folder.weight_files(place)]
        vae["digest"] = diffusers_folder.digest_of(place, files)
    if latent and (text := described.text):
        read = {"path": str(text.folder), "digest": text.digest}
        latent["text"] = {**read, "tokens": text.tokens, "width": text.width}


def _path(block: Tree, key: str) -> str:
    if not isinstance(path := block.get("path"), str):
        raise OcmError(f"{key}: {path!r}; expected the folder that save_pretrained wrote")
    return path


def _published(tree: Tree, network: Tree, choice: Tree) -> Tree:
    """Return what is known of a published checkpoint."""
    entry = checkpoint_named(str(choice.get("name")))
    trained = FormulaSchedule(kind=entry.schedule, steps=entry.steps).model_dump()
    schedule = {**FormulaSchedule().model_dump(), **(tree.get("schedule") or {})}
    if schedule != trained:
        raise OcmError(f"{entry.name} was trained with schedule {trained}, found {schedule}")
    form, config = small(entry.family), configuration(entry.family, entry.config)
    known = [config, form.config]  # a preset may have written them out
    own = {k: v for k, v in _block(network, "config").items() if v not in [c.get(k) for c in known]}
    is_small = choice.get("size") == "small"
    config = {**config, **(form.config if is_small else {}), **own}
    if choice.get("origin") == "generated":
        _generate(tree, config.get("num_classes") or 0, form if is_small else None)
    given = {key: value for key, value in network.items() if value is not None}
    facts = {"scores": ["pretrained"], "family": entry.family, "time": asdict(entry.time)}
    return {**facts, **given, "config": config}


def _generate(tree: Tree, classes: int, form: Small | None) -> None:
    """Replace a published autoencoder and its images by random ones that fit the network."""
    side = form.side if form else TypeAdapter(Data).validate_python(tree["data"]).shape[-1]
    vae = _block(_block(_block(tree, "encode"), "latent"), "vae")
    if vae and vae.get("origin", "published") == "published":
        vae["origin"] = "generated"
        if form:
            vae["config"] = {**vae["config"], **_SMALL_VAE}
            side *= 2 ** (len(vae["config"]["block_out_channels"]) - 1)
    sizes = {key: tree["data"][key] for key in ("train_size", "test_size") if key in tree["data"]}
    tree["data"] = {"kind": "generated", "side": side, "classes": classes, **sizes}


def undefined_methods(experiment: Experiment) -> Iterator[str]:
    """Yield a line for each method that its sampler, or the bound, has no definition of."""
    methods = covariance.build_all(experiment.methods)
    for label, sampler in experiment.sample.samplers.items():
        for kind, where in _kernels_of(f"sample.samplers.{label}", sampler).items():
            suited = [name for name, method in methods.items() if method.defined_for(kind)]
            for method in [method for method in sampler.methods if method not in suited]:
                only = ", ".join(sorted(methods[method].kernels or ())) or "solvers"
                yield (
                    f"{where}.methods: {method!r} is defined for {only} only; "
                    f"for {kind} use {', '.join(map(repr, suited)) or 'another sampler'}"
                )
    bounds = {
        "train.timesteps": experiment.train.timesteps,
        "evaluate.likelihood": experiment.evaluate.get("likelihood"),
    }
    for where, block in bounds.items():
        for label in getattr(block, "methods", ()):
            if not methods[label].defined_for("ddpm"):
                yield f"{where}.methods: {label!r} is not defined for ddpm; leave it out"


def _kernels_of(where: str, sampler: Sampler) -> dict[str, str]:
    """Return the kernels of a sampler, and how a message names it with each."""
    if not isinstance(sampler, PresetParams):
        return {} if isinstance(sampler, SolverParams) else {sampler.kind: where}
    recipes = {nfe: PRESETS[sampler.name].recipe(nfe) for nfe in reversed(sampler.nfe)}
    return {recipe.kind: f"{where} (nfe = {nfe})" for nfe, recipe in recipes.items()}


def check_solvers(experiment: Experiment) -> None:
    """Raise an error that names every scheduler, option or nfe that diffusers refuses.

    It takes seconds, so `compose` does not; the start of a run does.
    """
    problems: dict[str, None] = {}
    for label, sampler in experiment.sample.samplers.items():
        if isinstance(sampler, SolverParams):
            from ocm_core.sampling.diffusers_solver import of_experiment  # imports diffusers

            for nfe in sampler.nfe:
                try:
                    of_experiment(experiment, sampler, nfe, 1.0).check(experiment.shape)
                except OcmError as error:
                    problems[f"{experiment.name}: sample.samplers.{label}.{error}"] = None
    if problems:
        raise OcmError("\n".join(problems))
