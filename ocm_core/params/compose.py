"""Compose an experiment: Hydra's tree of `params/`, presets, overrides, and what libraries know."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

import hydra
import yaml
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.global_hydra import GlobalHydra
from hydra.core.plugins import Plugins
from hydra.plugins.search_path_plugin import SearchPathPlugin
from hydra.types import RunMode
from omegaconf import OmegaConf

from ocm_core.errors import OcmError, unknown
from ocm_core.io.reading import reading
from ocm_core.io.yaml_files import MOST_BYTES, RESTORE, parse_yaml, read_yaml
from ocm_core.params.document import Tree, validated
from ocm_core.params.edits import Edit, apply, parse, preset_edits
from ocm_core.params.library import complete, undefined_methods
from ocm_core.pipeline.stage import stages
from ocm_core.project import located, shipped
from ocm_core.schema import combinations
from ocm_core.schema.experiment import Experiment

PARAMS = Path("params")
ACTIVE = PARAMS / "active.yaml"
SHOWN = 20  # problems in one message


def overlay(name: str) -> Path:
    """Return the file of an experiment."""
    return PARAMS / "experiment" / f"{name}.yaml"


def preset_file(name: str) -> Path:
    """Return the file of a preset: the project's, or the package's."""
    return located(PARAMS / "preset" / f"{name}.yaml")


def experiment_names() -> list[str]:
    """Return the experiments that have a file; each can take presets besides."""
    return sorted(file.stem for file in overlay("any").parent.glob("*.yaml"))


def preset_names() -> list[str]:
    """Return the presets that any experiment can take."""
    folders = (root / PARAMS / "preset" for root in (Path(), shipped()))
    return sorted({file.stem for folder in folders for file in folder.glob("*.yaml")})


def active_names() -> list[str]:
    """Return the experiments that a bare `snakemake` or `dvc repro` produces."""
    names: Any = read_yaml(ACTIVE).get("active")
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise OcmError(f"{ACTIVE}: active: expected a list of experiments, found {names!r}")
    return names


def split_name(name: str) -> tuple[str, list[str]]:
    """Return the experiment that has a file, and the presets that its name ends in."""
    known, endings = experiment_names(), preset_names()
    experiment, presets = name, list[str]()
    while experiment not in known:
        experiment, _, preset = experiment.rpartition("_")
        if preset not in endings:
            twins = [f"{each}_{ending}" for each in known for ending in endings]
            near = unknown(name, [*known, *twins]).partition("valid: ")[0]
            raise OcmError(
                f"{overlay(name)}: experiment {near}valid: {', '.join(known)}; each may end in "
                f"a preset: {', '.join(endings)}"
            )
        presets.insert(0, preset)
    return experiment, presets


def choices(name: str) -> list[str]:
    """Return what an experiment's files set: `as digits`, `base: paper`, `sample.count = 150`."""
    experiment, presets = split_name(name)
    files = [overlay(experiment), *map(preset_file, presets)]
    lines = [line for file in files for line in _choices(read_yaml(file), "")]
    shown = [line for line in lines if not line.startswith("report.")]
    return [f"as {experiment}", *shown] if presets else shown


def _choices(tree: Tree, above: str) -> Iterator[str]:
    for entry in tree.pop("defaults", ()):
        pairs = entry.items() if isinstance(entry, dict) else [("as", entry)]
        yield from (f"{key.rpartition('/')[2]}: {value}" for key, value in pairs)
    for key, value in tree.items():
        if isinstance(value, dict) and value:
            yield from _choices(value, f"{above}{key}.")
        else:
            yield f"{above}{key} = {value}"


def dump(experiment: Experiment) -> str:
    """Return every parameter as YAML."""
    return yaml.safe_dump(experiment.model_dump(mode="json"), sort_keys=False, width=100)


def compose(name: str, overrides: Sequence[str] = ()) -> Experiment:
    """Return the experiment of that name, which may end in presets, with overrides."""
    files = [(file, file.stat()) for file in sorted(PARAMS.rglob("*.yaml"))]
    state = tuple((file, stat.st_mtime_ns, stat.st_size) for file, stat in files)
    return _compose(name, tuple(overrides), Path.cwd(), state)


@lru_cache(maxsize=100)
def _compose(name: str, overrides: tuple[str, ...], *_: object) -> Experiment:
    base, presets = split_name(name)
    draft = _Draft(base)
    for preset in presets:
        full = draft.experiment(base).model_dump(mode="json")
        draft.edit(preset_edits(preset_file(preset), full), full)
        draft.tree["report"]["title"] += f" ({preset})"
    if overrides:
        full = draft.experiment(base).model_dump(mode="json")
        draft.edit([*map(parse, overrides)], full)
    experiment = draft.experiment(name)
    if by := experiment.reseed:  # what is trained, drawn or chosen has other seeds; the data stay
        tree = experiment.model_dump(mode="json")
        tree |= {name: _shifted(tree[name], by) for name in ("train", "sample", "evaluate")}
        experiment = validate(tree, overlay(name))
    return experiment


class _Draft:
    """A tree of parameters, and where each of them comes from."""

    def __init__(self, name: str) -> None:
        self.file, primary = overlay(name), f"experiment/{name}"
        self.given: list[tuple[object, Tree]] = []  # by files and overrides; later ones win
        read_yaml(self.file)
        with _hydra(self.file):
            loader = GlobalHydra.instance().config_loader()
            origins = loader.compute_defaults_list(primary, [], RunMode.RUN).defaults
            self.tree = cast(Tree, OmegaConf.to_container(hydra.compose(primary)))
        for origin in origins:
            path, block = PARAMS / f"{origin.config_path}.yaml", origin.package or ""
            if block in ("base", "experiment"):
                raise OcmError(f"{path}: expected `# @package _global_` as its first line")
            if not block.startswith("hydra"):
                self._note(path, block, read_yaml(located(path), block))

    def _note(self, where: object, key: str, value: Any) -> None:
        for name in reversed(key.split(".") if key else []):
            value = {name: value}
        self.given.append((where, value))

    def _blamed(self, line: str) -> object:
        """Return what has set the key that a problem begins with."""
        key = line.partition(": ")[0].partition(" ")[0].split(".")
        holders = (where for where, tree in reversed(self.given) if _holds(tree, key))
        return next(holders, self.file)

    def edit(self, edits: Sequence[Edit], full: Tree) -> None:
        """Apply a preset's changes or overrides."""
        apply(edits, self.tree, full)
        for edit in edits:
            self._note(edit.source, edit.key, edit.value)

    def experiment(self, name: str) -> Experiment:
        """Return the tree as an experiment, or raise an error with all of its problems."""
        with reading(overlay(name), "parameters that can be resolved", RESTORE):
            tree = cast(Tree, OmegaConf.to_container(OmegaConf.create(self.tree), resolve=True))
        for block in (tree.get("evaluate"), (tree.get("sample") or {}).get("samplers")):
            for key in [key for key, value in (block or {}).items() if value is None]:
                cast(Tree, block).pop(key)  # left out
        incomplete, wrong = list(complete(tree)), list[str]()
        experiment = _validated({"name": name, **tree}, wrong)
        failed = tuple(f"{line.partition(':')[0]}." for line in incomplete)
        problems = [*incomplete, *(line for line in wrong if not line.startswith(failed))]
        if experiment and not problems:
            problems += combinations.problems(experiment)
            for stage in stages().values():
                if stage.params is None or stage.name in experiment.evaluate:
                    problems += stage.check(experiment)
            problems += [] if problems else undefined_methods(experiment)
        if problems or experiment is None:
            lines = [f"{self._blamed(line)}: {line}" for line in problems[:SHOWN]]
            more = [f"and {len(problems) - SHOWN} more"] if len(problems) > SHOWN else []
            raise OcmError("\n".join([*lines, *more]))
        return experiment


def _holds(tree: Any, key: Sequence[str]) -> bool:
    for name in key:
        if isinstance(tree, list):
            return name.isdecimal()
        if not isinstance(tree, dict) or name not in tree:
            return False
        tree = tree[name]
    return True


def validate(tree: Tree, where: object) -> Experiment:
    """Return a tree that was dumped as an experiment; nothing is completed or combined anew."""
    problems: list[str] = []
    experiment = _validated(tree, problems)
    if experiment is None or problems:
        raise OcmError("\n".join(f"{where}: {line}" for line in problems))
    return experiment


def _validated(tree: Tree, problems: list[str]) -> Experiment | None:
    """Each block of `evaluate` is of the type that its stage declares."""
    types = {stage.name: stage.params for stage in stages().values() if stage.params}
    evaluate = {}
    for name, block in (tree.get("evaluate") or {}).items():
        if name not in types:
            problems.append(f"evaluate.{name}: {unknown(name, types)}")
        elif valid := validated(types[name], block, problems, f"evaluate.{name}."):
            evaluate[name] = valid
    return validated(Experiment, {**tree, "evaluate": evaluate}, problems)


def _shifted(tree: Any, by: int) -> Any:
    if not isinstance(tree, dict):
        return tree
    new = {key: _shifted(value, by) for key, value in tree.items()}
    if "seed" in new:
        new["seed"] += 100 * by
    if "seeds" in new:
        new["seeds"] = [seed + 10 * by for seed in new["seeds"]]
    return new


class ShippedParameters(SearchPathPlugin):
    """Look for what a project's own `params/` does not have in the package's."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        """Add the package after the project."""
        search_path.append("ocm", f"file://{shipped() / PARAMS}")


@contextmanager
def _hydra(asked: object) -> Iterator[None]:
    """Initialise Hydra on the tree of `params/`; its errors name what was asked of it."""
    for file in PARAMS.rglob("*.yaml"):
        if file.stat().st_size > MOST_BYTES // 16 or b"*" in file.read_bytes():
            parse_yaml(file)  # Hydra would not ask how much it stands for
    Plugins.instance().register(ShippedParameters)  # again and again is as good as once
    with (
        warnings.catch_warnings(),
        reading(asked, "parameters that Hydra can compose", RESTORE),
        hydra.initialize_config_dir(str(PARAMS.resolve()), version_base="1.3"),
    ):
        warnings.filterwarnings("ignore", "In .* Defaults list is missing `_self_`")  # it is last
        try:
            yield
        except Exception as error:
            for file in PARAMS.rglob("*.yaml"):
                if file.relative_to(PARAMS).with_suffix("").as_posix() in str(error):
                    read_yaml(file)  # says better what is wrong with it
            raise
