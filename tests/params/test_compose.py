"""What is composed from files, presets and overrides, and what it says when it is dumped."""

import re
from itertools import product
from pathlib import Path

import pytest
import yaml

from ocm_core.checkpoints.registry import CHECKPOINTS
from ocm_core.cli import main
from ocm_core.errors import OcmError
from ocm_core.params.compose import choices, compose, dump, validate
from ocm_core.params.edits import matching
from ocm_core.project import experiment_names, preset_names
from ocm_core.schema.experiment import TrunkNetworkParams

ALIKE = ("paper", "seed3")  # of mixtures alone, and as `seed2`
SUITED = [(n, p) for n, p in product(experiment_names(), preset_names()) if p not in ALIKE]


@pytest.mark.parametrize("name", experiment_names())
def test_what_is_dumped_reads_back(name: str) -> None:
    experiment = compose(name)
    assert validate(yaml.safe_load(dump(experiment)), "x.yaml") == experiment
    assert experiment.name == name


def test_an_experiment_is_composed_once_until_a_file_changes(project: Path) -> None:
    first = compose("toy_mog9")
    assert compose("toy_mog9") is first
    file = project / "experiment/toy_mog9.yaml"
    file.write_text(file.read_text().replace("std: 0.1", "std: 0.25"))
    assert compose("toy_mog9").data.model_dump()["std"] == 0.25


def test_methods_are_completed_from_their_files() -> None:
    methods = compose("toy_mog9").methods
    assert methods["rademacher_100"].kind == "rademacher"
    assert methods["rademacher_100"].options == {"probes": 100}
    needs = {label: methods[label].needs for label in ("ocm_relative", "analytic", "beta")}
    assert needs == {"ocm_relative": "head", "analytic": "moments", "beta": "nothing"}


@pytest.mark.parametrize(("name", "preset"), SUITED)
def test_any_experiment_takes_any_preset(name: str, preset: str) -> None:
    assert compose(f"{name}_{preset}").report.title == f"{compose(name).report.title} ({preset})"


def test_every_line_of_a_preset_changes_some_experiment() -> None:
    files = {name: Path("params/preset", f"{name}.yaml").read_text() for name in preset_names()}
    keys = {(preset, key) for preset, text in files.items() for key in yaml.safe_load(text)}
    changed = set()
    names = ["toy_mog9", "cifar10_cs", "cifar10_small", "digits_flow"]
    for preset, name in product(preset_names(), names):
        full = compose(name).model_dump(mode="json")
        changed |= {k for k in keys if k[0] == preset and matching(full, k[1])}
    assert keys - changed == {("paper", "only")}


def test_presets_are_chained_and_a_file_of_that_name_wins(project: Path) -> None:
    both = compose("digits_seed2_smoke")
    assert (both.reseed, both.sample.count, both.sample.seeds) == (2, 8, [20, 21])
    overlay = "# @package _global_\ndefaults: [digits]\nsample: { count: 7 }\n"
    (project / "experiment/digits_smoke.yaml").write_text(overlay)
    assert compose("digits_smoke").sample.count == 7


def test_another_seed_concerns_all_but_the_data() -> None:
    first, second = compose("digits"), compose("digits_seed2")
    assert second.data == first.data and second.features == first.features
    assert second.sample.seeds == [20, 21, 22]
    assert first.train.score and second.train.score and second.train.timesteps
    assert second.train.score.seed == first.train.score.seed + 200 == 201
    assert (second.train.heads.seed, second.train.timesteps.seed) == (203, 208)
    assert second.evaluate["likelihood"].model_dump()["seed"] == 204
    assert validate(yaml.safe_load(dump(second)), "x.yaml") == second  # not shifted again


def test_an_override_wins_over_a_preset(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["params", "digits", "sample.count=3"]) == 0
    assert "count: 3" in capsys.readouterr().out
    assert compose("digits_smoke", ["sample.count=5"]).sample.count == 5
    assert compose("cifar10_ls_smoke", ["+data.train_size=32"]).data.model_dump()["side"] == 16


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_a_smoke_run_needs_no_download(name: str) -> None:
    smoke = compose(f"{name}_smoke")
    network, latent = smoke.network, smoke.encode.latent
    assert isinstance(network, TrunkNetworkParams) and network.checkpoint
    assert network.checkpoint.origin == smoke.data.kind == "generated"
    assert smoke.data.shape[-1] <= 64 and smoke.shape[-1] in (8, 16)
    assert smoke.data.classes == (network.config.get("num_classes") or 0)
    assert latent is None or latent.vae.origin == "generated"
    assert smoke.features and smoke.features.space == "efficientnet_lite0"


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_random_weights_of_full_size(name: str) -> None:
    full, published = compose(name, ["network.checkpoint.origin=generated"]), compose(name)
    assert full.network.config == published.network.config
    assert (full.data.kind, full.data.shape) == ("generated", published.data.shape)
    assert full.shape == published.shape


def test_smoke_never_enlarges() -> None:
    for name in experiment_names():
        whole, smoke = compose(name), compose(f"{name}_smoke")
        assert smoke.sample.count < whole.sample.count
        for key in ("score", "heads", "vae", "classifier"):
            settings = getattr(smoke.train, key)
            assert settings is None or settings.iterations == 20
    full, few = (compose(f"cifar10_small{end}").model_dump() for end in ("", "_smoke"))
    assert all(few[key] == full[key] for key in ("data", "encode", "schedule", "methods", "head"))


def test_paper_is_for_mixtures() -> None:
    heads = compose("toy_mog9_paper").train.heads
    assert (heads.iterations, heads.learning_rate, heads.decay) == (50000, 1e-3, "constant")
    with pytest.raises(OcmError, match=r"preset/paper\.yaml: for experiments with data\.kind"):
        compose("digits_paper")


def test_choices_are_what_the_files_set() -> None:
    assert choices("toy_mog9")[0] == "base: mixture"
    assert "data.std = 0.1" in choices("toy_mog9")
    assert choices("digits_seed2")[0] == "as digits" and choices("digits_seed2")[-1] == "reseed = 2"
    assert not any("title" in line for line in choices("digits"))


def test_a_rehearsal_has_few_images_and_the_full_network() -> None:
    full = ["network.checkpoint.size=published", "network.config.label_dropout=0.2"]
    rehearsal = compose("imagenet256_smoke", full)
    assert isinstance(rehearsal.network, TrunkNetworkParams) and rehearsal.encode.latent
    assert rehearsal.network.config["depth"] == 28 and rehearsal.encode.latent.vae.downsampling == 8
    assert (rehearsal.data.shape, rehearsal.data.classes) == ((3, 256, 256), 1000)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("ocm+dct: { kind: ocm }", "methods.ocm+dct: a basis is named by the label METHOD+BASIS"),
        ("bar: { kind: ocm+dct }", "methods.bar: a basis is named by the label METHOD+BASIS"),
        ("ocn+dct:", "methods.ocn+dct: 'ocn' is unknown; did you mean 'ocm'"),
        ("ocm+dtc:", "basis 'dtc' is unknown; did you mean 'dct'"),
    ],
)
def test_a_basis_belongs_to_a_method_of_the_experiment(
    line: str, message: str, project: Path
) -> None:
    overlay = f"# @package _global_\ndefaults: [digits]\nmethods:\n  {line}\n"
    (project / "experiment/other.yaml").write_text(overlay)
    with pytest.raises(OcmError, match=re.escape(message)):
        compose("other")
