"""`cifar10_small` in small, from archives of a few images in either form to its page."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ocm_core.datasets.cifar10 import ARCHIVES, BINARY, PACKAGE
from ocm_core.io.archives import Archive
from ocm_core.params.compose import compose
from ocm_core.pipeline.graph import graph_of
from tests.datasets import files
from tests.pipeline.conftest import NOWHERE, Project

pytestmark = pytest.mark.slow
NAME, REAL = "cifar10_small_smoke", "cifar10_small"
RUN = ("snakemake", "--cores", "2", f"reports/{NAME}.html")
TRAIN, TEST = 24, 8
RECORDS = [files.cifar_record(i % 10, files.pixels(i, 32, 32)) for i in range(TRAIN + TEST)]
FORMS: dict[str, Callable[..., Path]] = {BINARY: files.cifar10, PACKAGE: files.cifar10_package}


@pytest.fixture(scope="module")
def encoded(empty: Project, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Project]:
    """By the form of the archive, whose digests are as if it had been published."""

    def encode(form: str) -> Project:
        project = empty.copy(tmp_path_factory.mktemp("cifar10") / "project")
        project.env |= {"http_proxy": NOWHERE, "https_proxy": NOWHERE, "no_proxy": "127.0.0.1"}
        (project.root / "datasets.lock.json").unlink(missing_ok=True)  # of those that lie here
        folder = project.root / "datasets/cifar10"
        _publish(project.root, FORMS[form](folder, RECORDS[:TRAIN], RECORDS[TRAIN:]))
        project.run(
            "snakemake", "--cores", "2", f"artifacts/{NAME}/encode/encode/all/manifest.json"
        )
        return project

    return {form: encode(form) for form in FORMS}


def _publish(root: Path, path: Path) -> None:
    forms = (ARCHIVES["batches"], ARCHIVES["batches"].instead)
    (archive,) = (form for form in forms if form and form.file == path.name)
    module = root / "ocm_core/datasets/cifar10.py"
    source, content = module.read_text(), path.read_bytes()
    for found, made in _facts(archive, content).items():
        assert source.count(found) == 1
        source = source.replace(found, made)
    module.write_text(source)


def _facts(archive: Archive, content: bytes) -> dict[str, str]:
    """What the module says of the archive, and what it has to say of this one."""
    digests = {
        getattr(archive, name): hashlib.new(name, content).hexdigest() for name in ("sha256", "md5")
    }
    return {found: made for found, made in digests.items() if found} | {
        str(archive.bytes): str(len(content))
    }


def _manifest(project: Project, task: str) -> Any:
    return project.manifest(task, NAME)


@pytest.mark.parametrize("form", FORMS)
def test_an_archive_is_taken_and_encoded(encoded: dict[str, Project], form: str) -> None:
    project = encoded[form]
    fetched = _manifest(project, "fetch_data/all")["notes"]
    assert list(fetched["archives"]) == [form]
    assert fetched["items"] == {"train": TRAIN, "test": TEST}
    made = _manifest(project, "encode/all")
    assert made["notes"]["items"] == {"train": 2 * TRAIN, "test": TEST}


def test_the_images_are_the_same_from_either(encoded: dict[str, Project]) -> None:
    """To the byte; the store's own head names what it was made from."""
    one, other = (_manifest(project, "encode/all")["files"] for project in encoded.values())
    assert one.keys() == other.keys()
    differ = {name for name in one if one[name] != other[name]}
    assert differ == {"train.zarr/zarr.json", "test.zarr/zarr.json"}


@pytest.fixture(scope="module")
def finished(encoded: dict[str, Project]) -> Project:
    encoded[PACKAGE].run(*RUN)
    return encoded[PACKAGE]


def test_the_images_go_to_the_page(finished: Project) -> None:
    project = finished
    results = (project.root / f"reports/{NAME}/results.csv").read_text()
    for label, sampler in compose(NAME).sample.samplers.items():
        assert all(f"trained,{label},{method}," in results for method in sampler.methods)
    assert all(f",{measure}," in results for measure in ("frechet", "bits_per_dim", "loss"))
    assert (project.root / f"reports/{NAME}.html").stat().st_size > 100_000
    assert "Nothing to be done" in project.run("snakemake", f"reports/{NAME}.html")


def test_killed_twice_on_the_way_it_has_the_same_bytes(
    encoded: dict[str, Project], finished: Project
) -> None:
    """From the other form of the archive; times and what shows them are their own."""
    project = encoded[BINARY]
    for sign in (
        "train/heads/.trained.staging/state/training.safetensors",
        "sample/sample/.all.staging/key",
    ):
        assert project.killed(project.root / f"artifacts/{NAME}/{sign}", *RUN)
    project.run(*RUN)
    assert project.metrics(NAME) == finished.metrics(NAME)
    apart = ("fetch_data", "encode", "report")
    compared = [str(task) for task in graph_of(NAME).tasks if task.stage not in apart]
    assert len(compared) > 8
    for task in compared:
        assert _manifest(project, task)["files"] == _manifest(finished, task)["files"], task


def test_it_is_the_real_one_in_small() -> None:
    real, smoke = compose(REAL), compose(NAME)
    assert smoke.network.config.keys() == real.network.config.keys()
    same = ("data", "encode", "schedule", "methods", "head")
    assert all(getattr(smoke, name) == getattr(real, name) for name in same)
    stages = [{task.stage for task in graph_of(name).tasks} for name in (REAL, NAME)]
    assert stages[0] == stages[1]
