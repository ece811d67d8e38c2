"""The paper's six experiments: in small they run; in full they are planned, and ask for a file."""

import json
import shutil
from collections.abc import Callable
from dataclasses import asdict

import pytest
import torch
from safetensors.torch import load_file

from ocm_core.checkpoints.registry import CHECKPOINTS
from ocm_core.networks import configuration
from ocm_core.params.compose import compose
from ocm_core.pipeline.graph import graph_of
from ocm_core.stages.heads import Heads
from ocm_core.stages.selection import SelectedHeads
from tests.pipeline.conftest import NOWHERE, Project


@pytest.fixture(scope="module")
def project(empty: Project, tmp_path_factory: pytest.TempPathFactory) -> Project:
    copied = empty.copy(tmp_path_factory.mktemp("published") / "project")
    copied.env |= {"http_proxy": NOWHERE, "https_proxy": NOWHERE, "no_proxy": "127.0.0.1"}
    return copied


# `cifar10_ls` is run by tests/cluster; `cifar10_cs` has the network and schedule of `imagenet64`.
@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n in CHECKPOINTS if n not in ("cifar10_ls", "cifar10_cs")])
def test_the_smoke_experiment_runs(finished: Callable[..., Project], name: str) -> None:
    smoke = f"{name}_smoke"
    project, experiment = finished(smoke), compose(smoke)
    results = (project.root / f"reports/{smoke}/results.csv").read_text().splitlines()
    bounded = "bits_per_dim" in json.dumps(project.metrics(smoke))
    assert bounded == ("likelihood" in experiment.evaluate)
    for label, sampler in experiment.sample.samplers.items():
        for method in sampler.methods:
            drawn = f"pretrained,{label},{method},"
            assert [r for r in results if r.startswith(drawn) and ",frechet," in r]
    _assert_best_heads(project, smoke)
    place = project.root / "artifacts" / smoke  # which tells no port of the server, a random one
    fetched = [file for file in place.glob("fetch/fetch_*/all/**/*") if file.is_file()]
    assert fetched and not any(b"127.0.0.1" in file.read_bytes() for file in fetched)
    assert "Nothing to be done" in project.run("snakemake", f"reports/{smoke}.html")
    assert "every file is as its manifest says" in project.run("ocm", "verify", smoke)


def _assert_best_heads(project: Project, smoke: str) -> None:
    """Each method's head is that of the iteration with the least distance."""
    selected = SelectedHeads(project.folder("selection/pretrained", smoke))
    trained = Heads(project.folder("heads/pretrained", smoke))
    record = json.loads((selected.folder / "selection.json").read_text())
    assert record["chosen"]
    for label, iteration in record["chosen"].items():
        distances = record["distances"][label]
        assert distances.keys() == {"10", "20"}
        assert distances[str(iteration)] == min(distances.values())
        used, kept = map(load_file, (selected.file(label), trained.file(label, iteration)))
        assert used.keys() == kept.keys()
        assert all(torch.equal(used[name], kept[name]) for name in used)


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_the_smoke_experiment_is_the_real_one_in_small_and_that_of_the_registry(name: str) -> None:
    entry, real, smoke = CHECKPOINTS[name], compose(name), compose(f"{name}_smoke")
    assert real.network.config == configuration(entry.family, entry.config)
    assert real.head.kind == entry.head
    assert real.network.time.model_dump() == asdict(entry.time)
    assert (real.schedule.kind, real.schedule.steps) == (entry.schedule, entry.steps)
    assert smoke.network.family == real.network.family
    assert smoke.network.config.keys() == real.network.config.keys()
    assert smoke.network.time == real.network.time
    assert smoke.network.checkpoint.name == real.network.checkpoint.name
    assert (smoke.head, smoke.schedule) == (real.head, real.schedule)
    stages, of_real = ({task.stage for task in graph_of(e.name).tasks} for e in (smoke, real))
    # generated images, features from a package
    only_real = {"fetch_data", "fetch_features", "fetch_reference"}
    dummies = {stage for stage in stages if stage.startswith("dummy_")}
    assert dummies and stages == of_real - only_real | dummies


def test_without_a_network_the_file_is_asked_for_in_one_message(project: Project) -> None:
    for name, command in {
        "celeba64": "ocm run fetch_score celeba64 --log fetch.log",
        "imagenet256": "snakemake --cores 2 reports/imagenet256.html",
    }.items():
        said, source = project.run(*command.split(), fails=True), CHECKPOINTS[name].source()
        (message,) = (line for line in said.splitlines() if line.startswith("ocm: "))
        assert "Traceback" not in said and "fetch it by hand from" in message
        assert f"checkpoints/{name}/{source.file}" in message and source.page in message
    assert not [*project.root.glob("checkpoints/celeba64/*")]


def test_a_file_that_was_put_in_place_is_taken(project: Project) -> None:
    project.run("ocm", "run", "dummy_score", "lsun_bedroom_smoke")
    made = project.folder("dummy_score/all", "lsun_bedroom_smoke") / "model-2388000.ckpt"
    place = project.root / "checkpoints/celeba64/celeba64.pth"
    place.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(made, place)
    said = project.run("ocm", "run", "fetch_score", "celeba64", fails=True)
    assert "published weights do not fit DdpmUNet" in said
    assert place.exists()
    shutil.rmtree(place.parent)
