"""Compose the Hydra tree of `params/` into one experiment: defaults, groups, overlay, overrides."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import hydra
from hydra.errors import HydraException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from ocm_core.errors import OcmError, unknown
from ocm_core.params import methods, networks
from ocm_core.params.document import Tree, validate
from ocm_core.schema.experiment import Experiment

PARAMS = Path("params")


def overlay(name: str) -> Path:
    return PARAMS / "experiment" / f"{name}.yaml"


def experiment_names() -> list[str]:
    return sorted(file.stem for file in overlay("any").parent.glob("*.yaml"))


def compose(name: str, overrides: Sequence[str] = ()) -> Experiment:
    file = overlay(name)
    if name not in experiment_names():
        raise OcmError(f"{file}: experiment {unknown(name, experiment_names())}")
    tree = _compose_tree(name, [])
    if overrides:
        _check_keys(overrides, tree)
        tree = _compose_tree(name, overrides)
    if isinstance(tree.get("methods"), dict):
        tree["methods"] = methods.complete(tree["methods"], file)
    if isinstance(tree.get("network"), dict):
        tree["network"] = networks.complete(tree, file)
    experiment = validate({"name": name, **tree}, file)
    methods.check_samplers(experiment, file)
    return experiment


def _compose_tree(name: str, overrides: Sequence[str]) -> Tree:
    try:
        with hydra.initialize_config_dir(str(PARAMS.resolve()), version_base=None):
            config = hydra.compose("defaults", [f"experiment={name}", *overrides])
            tree: Any = OmegaConf.to_container(config, resolve=True)
    except (HydraException, OmegaConfBaseException, YAMLError) as error:
        reason = " ".join(str(error).split())
        asked = f" with {' '.join(overrides)}" if overrides else ""
        raise OcmError(f"{overlay(name)}{asked}: {reason}") from None
    tree.pop("experiment", None)
    return dict(tree)


def _check_keys(overrides: Sequence[str], tree: Tree) -> None:
    """Refuse overrides of unknown keys; `+key=value` adds one, and the schema judges it."""
    valid = set(_dotted(tree))
    problems = []
    for override in overrides:
        key, equals, _ = override.partition("=")
        if not equals and not key.startswith("~"):
            problems.append(f"override {override!r}: expected key=value")
        elif not key.startswith("+") and (bare := key.lstrip("~")) not in valid:
            problems.append(f"override {override!r}: key {unknown(bare, _near(bare, valid))}")
    if problems:
        raise OcmError("\n".join(problems))


def _dotted(tree: Tree, prefix: str = "") -> Iterator[str]:
    for key, value in tree.items():
        yield f"{prefix}{key}"
        if isinstance(value, dict):
            yield from _dotted(value, f"{prefix}{key}.")


def _near(key: str, valid: set[str]) -> set[str]:
    """The keys worth listing: the nearest, and those beside the part of `key` that does exist."""
    parent = key
    while parent and parent not in valid:
        parent = parent.rpartition(".")[0]
    prefix = f"{parent}." if parent else ""
    beside = {key for key in valid if key.startswith(prefix) and "." not in key[len(prefix) :]}
    return beside | set(get_close_matches(key, valid, n=1))
