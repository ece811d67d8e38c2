"""Compose the Hydra tree of `params/` into one experiment: defaults, groups, overlay, overrides."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import hydra
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.global_hydra import GlobalHydra
from hydra.core.plugins import Plugins
from hydra.plugins.search_path_plugin import SearchPathPlugin
from hydra.types import RunMode
from omegaconf import OmegaConf
from pydantic import BaseModel, ConfigDict

from ocm_core.errors import LONGEST_NAME, OcmError, shortened, unknown
from ocm_core.io.reading import reading
from ocm_core.params import methods, models, networks
from ocm_core.params.document import RESTORE, Tree, checked, checked_text, validate
from ocm_core.params.resolved import PARAMS, experiment_names, overlay
from ocm_core.params.solvers import check_solvers
from ocm_core.project import located, shipped
from ocm_core.schema.experiment import Experiment

LONGEST_OVERRIDE = 2000  # characters; Hydra's grammar takes seconds for more


class ShippedParameters(SearchPathPlugin):
    """What a project's own `params/` does not have comes from the package's."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        search_path.append("ocm", f"file://{shipped() / PARAMS}")


class ExperimentDraft(BaseModel):
    """What the library completes before the schema can judge the whole."""

    model_config = ConfigDict(strict=True)

    methods: dict[str, dict[str, Any] | None] = {}
    network: networks.NetworkDraft = networks.NetworkDraft()
    schedule: dict[str, Any] = {}


def compose(name: str, overrides: Sequence[str] = ()) -> Experiment:
    file = overlay(name)
    if name not in experiment_names():
        raise OcmError(f"{file}: experiment {unknown(name, experiment_names())}")
    tree = _compose_tree(name, [])
    if overrides:
        _check_keys(overrides, tree)
        tree = _compose_tree(name, overrides)
    checked(ExperimentDraft, tree, file)
    if "methods" in tree:
        tree["methods"] = methods.complete(tree["methods"], file)
    tree = models.complete(tree, file)
    if "network" in tree:
        tree["network"] = networks.complete(tree, file)
    experiment = validate({"name": name, **tree}, file)
    methods.check_samplers(experiment, file)
    check_solvers(experiment, file)
    return experiment


def origins(name: str) -> list[Path]:
    """The files that an experiment is composed from; later ones are laid over earlier ones."""
    with _hydra(str(overlay(name))):
        loader = GlobalHydra.instance().config_loader()
        chosen = loader.compute_defaults_list("defaults", [f"experiment={name}"], RunMode.RUN)
    paths = [str(entry.config_path) for entry in chosen.defaults]
    files = [PARAMS / f"{path}.yaml" for path in paths if not path.startswith("hydra/")]
    if not any(f"family: {models.FAMILY}" in located(file).read_text() for file in files):
        return files
    return [*files, *models.model_files(_compose_tree(name, []))]


def _compose_tree(name: str, overrides: Sequence[str]) -> Tree:
    asked = f" with {' '.join(overrides)}" if overrides else ""
    with _hydra(f"{overlay(name)}{asked}"):
        config = hydra.compose("defaults", [f"experiment={name}", *overrides])
        tree: Any = OmegaConf.to_container(config, resolve=True)
        tree.pop("experiment", None)
        return dict(tree)


@contextmanager
def _hydra(what: str) -> Iterator[None]:
    """Hydra on the tree of `params/`; its errors name what was asked of it."""
    for file in PARAMS.rglob("*.yaml"):
        if file.parent.name != "resolved":
            checked_text(file)  # Hydra would not ask how much it stands for
    Plugins.instance().register(ShippedParameters)  # again and again is as good as once
    with (
        reading(what, "parameters that Hydra can compose", RESTORE),
        hydra.initialize_config_dir(str(PARAMS.resolve()), version_base=None),
    ):
        yield


def _check_keys(overrides: Sequence[str], tree: Tree) -> None:
    """Refuse overrides of unknown keys; `+key=value` adds one, and the schema judges it."""
    valid = set(dict(dotted(tree)))
    problems = []
    for override in overrides:
        key, equals, _ = override.partition("=")
        if len(override) > LONGEST_OVERRIDE:
            shown = shortened(override, LONGEST_NAME)
            problems.append(f"override {shown!r}: longer than {LONGEST_OVERRIDE} characters")
        elif not equals and not key.startswith("~"):
            problems.append(f"override {override!r}: expected key=value")
        elif not key.startswith("+") and (bare := key.lstrip("~")) not in valid:
            problems.append(f"override {override!r}: key {unknown(bare, near(bare, valid))}")
    if problems:
        raise OcmError("\n".join(problems))


def dotted(tree: Tree, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every key of the tree as it is typed, with its value."""
    for key, value in tree.items():
        yield f"{prefix}{key}", value
        if isinstance(value, dict):
            yield from dotted(value, f"{prefix}{key}.")


def near(key: str, valid: set[str]) -> set[str]:
    """The keys worth listing: the nearest, and those beside the part of `key` that does exist."""
    parent = key
    while parent and parent not in valid:
        parent = parent.rpartition(".")[0]
    prefix = f"{parent}." if parent else ""
    beside = {key for key in valid if key.startswith(prefix) and "." not in key[len(prefix) :]}
    return beside | set(get_close_matches(key, valid, n=1))
