"""Compose an experiment: Hydra's tree of `params/`, presets, overrides, and what libraries know."""

import warnings
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, cast, get_args

import hydra
import yaml
from hydra.core.default_element import ResultDefault
from hydra.core.global_hydra import GlobalHydra
from hydra.types import RunMode
from omegaconf import OmegaConf

from ocm_core import covariance
from ocm_core.checkpoints.known import block_at, complete_from_folder, complete_published
from ocm_core.diffusion import kernels
from ocm_core.errors import OcmError, unknown
from ocm_core.io.reading import reading
from ocm_core.io.yaml_files import MOST_BYTES, RESTORE, parse_yaml, read_yaml
from ocm_core.networks import configuration
from ocm_core.params.document import Tree, validated
from ocm_core.params.edits import Edit, flat, parse, preset_edits
from ocm_core.pipeline.stage import stages
from ocm_core.project import PARAMS, PRESETS, located, overlay, shipped, split_name
from ocm_core.sampling.checks import undefined_methods
from ocm_core.schema import combinations
from ocm_core.schema.experiment import Experiment, PointFamily, SamplerParams
from ocm_core.text import leaves

ACTIVE = PARAMS / "active.yaml"


def active_names() -> list[str]:
    """Return the experiments that a bare `snakemake` or `dvc repro` produces."""
    names: Any = read_yaml(ACTIVE).get("active")
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise OcmError(f"{ACTIVE}: active: expected a list of experiments, found {names!r}")
    return names


def choices(name: str) -> list[str]:
    """Return what an experiment's files set: `as digits`, `base: paper`, `sample.count = 150`."""
    experiment, presets = split_name(name)
    files = [overlay(experiment), *(located(PRESETS / f"{preset}.yaml") for preset in presets)]
    lines = [line for file in files for line in _choices(read_yaml(file))]
    shown = [line for line in lines if not line.startswith("report.")]
    return [f"as {experiment}", *shown] if presets else shown


def _choices(tree: Tree) -> Iterator[str]:
    for entry in tree.pop("defaults", ()):
        pairs = entry.items() if isinstance(entry, dict) else [("as", entry)]
        yield from (f"{key.rpartition('/')[2]}: {value}" for key, value in pairs)
    yield from (f"{key} = {value}" for key, value in leaves(tree))


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
        draft.edit(preset_edits(located(PRESETS / f"{preset}.yaml"), full), full)
        draft.tree["report"]["title"] += f" ({preset})"
    if overrides:
        draft.edit(map(parse, overrides), draft.experiment(base).model_dump(mode="json"))
    experiment = draft.experiment(name)
    if by := experiment.reseed:  # what is trained, drawn or chosen has other seeds; the data stay
        tree = experiment.model_dump(mode="json")
        tree |= {name: _shifted(tree[name], by) for name in ("train", "sample", "evaluate")}
        experiment = validate(tree, overlay(name))
    return experiment


class _Draft:
    """A tree of parameters, and where each of them comes from."""

    def __init__(self, name: str) -> None:
        self.file = overlay(name)
        read_yaml(self.file)
        self.tree, origins = _from_hydra(f"experiment/{name}", self.file)
        self.given: list[tuple[object, Tree]] = []  # keys of files and overrides; later ones win
        for origin in origins:
            path, block = PARAMS / f"{origin.config_path}.yaml", origin.package or ""
            if block in ("base", "experiment"):
                raise OcmError(f"{path}: expected `# @package _global_` as its first line")
            if not block.startswith("hydra"):
                self._note(path, block, read_yaml(located(path), block))

    def _note(self, where: object, key: str, value: Any) -> None:
        for name in reversed(key.split(".") if key else []):
            value = {name: value}
        self.given.append((where, dict(flat(value))))

    def _blamed(self, line: str) -> object:
        """Return what has set the key that a problem begins with."""
        key = line.partition(": ")[0].partition(" ")[0]
        return next((where for where, keys in reversed(self.given) if key in keys), self.file)

    def edit(self, edits: Iterable[Edit], full: Tree) -> None:
        """Apply a preset's changes or overrides."""
        for edit in edits:
            edit.apply(self.tree, full)
            self._note(edit.source, edit.key, edit.value)

    def experiment(self, name: str) -> Experiment:
        """Return the tree as an experiment, or raise an error with all of its problems."""
        with reading(overlay(name), "parameters that can be resolved", RESTORE):
            tree = cast(Tree, OmegaConf.to_container(OmegaConf.create(self.tree), resolve=True))
        for block in (block_at(tree, "evaluate"), block_at(tree, "sample", "samplers")):
            for key in [key for key, value in block.items() if value is None]:
                del block[key]  # left out
        incomplete, wrong = list(_complete(tree)), list[str]()
        experiment = _validated({"name": name, **tree}, wrong)
        failed = tuple(f"{line.partition(':')[0]}." for line in incomplete)
        problems = [*incomplete, *(line for line in wrong if not line.startswith(failed))]
        if experiment and not problems:
            problems += combinations.problems(experiment)
            for stage in stages().values():
                if stage.params is None or stage.name in experiment.evaluate:
                    problems += stage.check(experiment)
            problems += [] if problems else undefined_methods(experiment)
        if experiment and not problems:
            return experiment
        raise OcmError("\n".join(f"{self._blamed(line)}: {line}" for line in problems))


def _complete(tree: Tree) -> Iterator[str]:
    """Fill in what methods, kernels, networks and checkpoints know; yield what they refuse."""
    methods = block_at(tree, "methods")
    for label, given in sorted(methods.items(), key=lambda item: "+" in item[0]):
        base, basis = covariance.split(label)
        kind = given.get("kind", label) if isinstance(given, dict) else label
        if given and (basis or covariance.split(str(kind))[1]):
            yield f"methods.{label}: a basis is named by the label METHOD+BASIS alone, without keys"
            continue
        if basis and given is None:
            if not isinstance(own := methods.get(base), dict):
                yield f"methods.{label}: {unknown(base, methods)}; add it to `methods`"
                continue
            given = {**own, "kind": f"{own['kind']}+{basis}"}
            given.pop("needs")
        if isinstance(given, dict | None):  # the schema refuses others
            options = {"kind": label, **(given or {})}
            own = {key: options.pop(key, None) for key in ("kind", "head", "init")}
            try:
                method = covariance.build(cast(str, own["kind"]), **options)
                methods[label] = {**own, "needs": method.needs, **method.options}
            except OcmError as error:
                yield f"methods.{label}: {error}"
    for label, sampler in block_at(tree, "sample", "samplers").items():
        if isinstance(sampler, dict) and sampler.get("kind") not in ("preset", "diffusers"):
            options = {k: v for k, v in sampler.items() if k not in SamplerParams.model_fields}
            try:
                sampler |= kernels.build(str(sampler.get("kind")), **options).model_dump()
            except OcmError as error:
                yield f"sample.samplers.{label}.{error}"
    network = block_at(tree, "network")
    from_folder = network.get("family") == "diffusers"
    if block_at(tree, "schedule").get("kind") == "model" and not from_folder:
        yield "schedule.kind: 'model' needs network.family: diffusers"
    try:
        if from_folder:
            complete_from_folder(tree, network)
        elif network and network.get("family") not in get_args(PointFamily):
            if network.get("checkpoint"):
                complete_published(tree, network, network["checkpoint"])
            given = network.get("config") or {}
            network["config"] = configuration(str(network.get("family")), given)
    except OcmError as error:
        yield str(error) if from_folder else f"network: {error}"


def validate(tree: Tree, where: object) -> Experiment:
    """Return a tree that was dumped as an experiment; nothing is completed or combined anew."""
    problems: list[str] = []
    if (experiment := _validated(tree, problems)) and not problems:
        return experiment
    raise OcmError("\n".join(f"{where}: {line}" for line in problems))


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


def _from_hydra(name: str, asked: object) -> tuple[Tree, Sequence[ResultDefault]]:
    """Return what Hydra composes, and the files that it takes; errors name what was asked."""
    for file in PARAMS.rglob("*.yaml"):
        if file.stat().st_size > MOST_BYTES // 16 or b"*" in file.read_bytes():
            parse_yaml(file)  # Hydra would not ask how much it stands for
    package = str(shipped() / PARAMS).replace("'", r"\'")  # has what a project's own has not
    search = [f"hydra.searchpath=['file://{package}']"]
    with (
        warnings.catch_warnings(),
        reading(asked, "parameters that Hydra can compose", RESTORE),
        hydra.initialize_config_dir(str(PARAMS.resolve()), version_base="1.3"),
    ):
        warnings.filterwarnings("ignore", "In .* Defaults list is missing `_self_`")  # it is last
        try:
            loader = GlobalHydra.instance().config_loader()
            origins = loader.compute_defaults_list(name, search, RunMode.RUN).defaults
            return cast(Tree, OmegaConf.to_container(hydra.compose(name, search))), origins
        except Exception as error:
            for file in PARAMS.rglob("*.yaml"):
                if file.relative_to(PARAMS).with_suffix("").as_posix() in str(error):
                    read_yaml(file)  # says better what is wrong with it
            raise
