"""The paper's six experiments: in small they run; in full they are planned, and ask for a file."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from ocm_core.artifacts.heads import HEADS_FILE, kept_file
from ocm_core.checkpoints.registry import CHECKPOINTS
from ocm_core.params.resolved import load
from ocm_core.pipeline import table
from tests.pipeline.conftest import NOWHERE, Project


@pytest.fixture(scope="module")
def project(empty: Project, tmp_path_factory: pytest.TempPathFactory) -> Project:
    copied = empty.copy(tmp_path_factory.mktemp("published") / "project")
    copied.env |= {"http_proxy": NOWHERE, "https_proxy": NOWHERE, "no_proxy": "127.0.0.1"}
    return copied


# `cifar10_ls` is run by tests/cluster; `cifar10_cs` has the network and schedule of `imagenet64`.
@pytest.mark.parametrize("name", [n for n in CHECKPOINTS if n not in ("cifar10_ls", "cifar10_cs")])
def test_the_smoke_experiment_runs_from_end_to_end(
    finished: Callable[..., Project], name: str
) -> None:
    smoke = f"{name}_smoke"
    project = finished(smoke)
    metrics = json.loads((project.root / f"reports/{smoke}.metrics.json").read_text())
    experiment = load(smoke)
    for label, sampler in experiment.sample.samplers.items():
        assert set(metrics["fid"][label]) == set(sampler.methods)
    assert ("nll_bpd" in metrics) == (experiment.evaluate.likelihood is not None)
    _assert_best_heads(project.root / "artifacts" / smoke)
    _assert_no_address(project.root / "artifacts" / smoke)
    assert "Nothing to be done" in project.run("snakemake", f"reports/{smoke}.html")
    assert "every file is as its manifest says" in project.run("ocm", "verify", smoke)


def _assert_no_address(artifacts: Path) -> None:
    """The port of the server that a checkpoint came from is another one each time."""
    fetched = [file for file in artifacts.glob("fetch_*/all/**/*") if file.is_file()]
    assert fetched and not any(b"127.0.0.1" in file.read_bytes() for file in fetched)


def _assert_best_heads(artifacts: Path) -> None:
    """Each method's heads are those of the iteration with the least FID."""
    made, trained = artifacts / "selection/published", artifacts / "heads/published"
    found, used = json.loads((made / "selection.json").read_text()), load_file(made / HEADS_FILE)
    assert found["chosen"].keys() == {name.split(".")[0] for name in used}
    for label, iteration in found["chosen"].items():
        distances = found["fid"][label]
        assert distances.keys() == {"10", "20"}
        assert distances[str(iteration)] == min(distances.values())
        kept = load_file(kept_file(trained, iteration))
        own = [name for name in kept if name.startswith(f"{label}.")]
        assert own and all(torch.equal(used[name], kept[name]) for name in own)


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_the_smoke_experiment_is_the_real_one_in_small(name: str) -> None:
    real, smoke = load(name), load(f"{name}_smoke")
    assert smoke.network.family == real.network.family
    assert smoke.network.config.keys() == real.network.config.keys()
    assert smoke.network.time == real.network.time
    assert smoke.network.checkpoint.name == real.network.checkpoint.name
    assert (smoke.head, smoke.schedule) == (real.head, real.schedule)
    only_training = "test" not in getattr(real.data, "splits", ["train", "test"])
    assert (smoke.data.test_size == 0) == only_training
    stages = {task.stage for task in table.tasks(smoke)}
    # generated images, features from a package
    only_real = {"fetch_data", "fetch_features", "fetch_reference"}
    assert stages == {t.stage for t in table.tasks(real)} - only_real | {
        stage for stage in stages if stage.startswith("publish_")
    }


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_the_parameters_are_the_registry_s(name: str) -> None:
    entry, experiment = CHECKPOINTS[name], load(name)
    config = {key: list(v) if isinstance(v, tuple) else v for key, v in entry.config.items()}
    assert experiment.network.config == config
    assert (experiment.network.time.shift, experiment.network.time.scale) == (
        entry.time.shift,
        entry.time.scale,
    )
    assert (experiment.schedule.kind, experiment.schedule.steps) == (entry.schedule, entry.steps)
    assert experiment.head.kind == entry.head


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_without_a_network_the_file_is_asked_for(project: Project, name: str) -> None:
    said = project.run("ocm", "run", "fetch_score", name, "--log", "fetch.log", fails=True)
    assert_one_message(said, name)
    assert not list(Path(project.root, "checkpoints", name).glob("*"))


def test_without_a_network_a_run_ends_in_one_message(project: Project) -> None:
    said = project.run("snakemake", "--cores", "2", "reports/imagenet256.html", fails=True)
    assert_one_message(said, "imagenet256")


def assert_one_message(said: str, name: str) -> None:
    messages = [line for line in said.splitlines() if line.startswith("ocm: ")]
    assert len(messages) == 1, said
    assert said.rstrip().endswith(messages[0])  # no traceback, no dump
    source = CHECKPOINTS[name].source()
    assert f"checkpoints/{name}/{source.file}" in messages[0]
    assert "fetch it by hand from" in messages[0]
    assert source.page in messages[0]


def test_a_file_that_was_put_in_place_is_taken(project: Project) -> None:
    """A small one stands in for the published file, and is refused by its keys."""
    project.run("snakemake", "artifacts/lsun_bedroom_smoke/publish_score/all/manifest.json")
    made = project.root / "artifacts/lsun_bedroom_smoke/publish_score/all/model-2388000.ckpt"
    place = project.root / "checkpoints/celeba64/celeba64.pth"
    place.parent.mkdir(parents=True)
    shutil.copyfile(made, place)
    target = "artifacts/celeba64/fetch_score/all/manifest.json"
    said = project.run("snakemake", "--cores", "1", target, fails=True)
    assert "published weights do not fit DdpmUNet" in said
    assert place.exists()
    shutil.rmtree(place.parent)
