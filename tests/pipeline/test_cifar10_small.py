"""`cifar10_small` in small, from archives of a few images in either form to its page."""

import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest

from ocm_core.datasets.cifar10 import ARCHIVES, BINARY, PACKAGE
from ocm_core.params.compose import compose
from ocm_core.pipeline.graph import graph_of
from tests.datasets import files
from tests.pipeline.conftest import NOWHERE, Project

pytestmark = pytest.mark.slow
NAME = "cifar10_small_smoke"
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
        project.run(*RUN[:-1], f"artifacts/{NAME}/encode/encode/all/manifest.json")
        return project

    return {form: encode(form) for form in FORMS}


def _publish(root: Path, path: Path) -> None:
    """Let the module say of its archive what it has to say of this one."""
    forms = (ARCHIVES["batches"], ARCHIVES["batches"].instead)
    (archive,) = (form for form in forms if form and form.file == path.name)
    module = root / "ocm_core/datasets/cifar10.py"
    source, content = module.read_text(), path.read_bytes()
    facts = {getattr(archive, n): hashlib.new(n, content).hexdigest() for n in ("sha256", "md5")}
    for found, made in {**facts, str(archive.bytes): str(len(content))}.items():
        if found:
            assert source.count(found) == 1
            source = source.replace(found, made)
    module.write_text(source)


def test_the_images_are_the_same_from_either_form(encoded: dict[str, Project]) -> None:
    for form, project in encoded.items():
        fetched = project.manifest("fetch_data/all", NAME)["notes"]
        assert list(fetched["archives"]) == [form]
        assert fetched["items"] == {"train": TRAIN, "test": TEST}
        made = project.manifest("encode/all", NAME)["notes"]
        assert made["items"] == {"train": 2 * TRAIN, "test": TEST}
    one, other = (project.manifest("encode/all", NAME)["files"] for project in encoded.values())
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


def test_killed_twice_it_has_the_same_bytes(encoded: dict[str, Project], finished: Project) -> None:
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
        ours, theirs = project.manifest(task, NAME), finished.manifest(task, NAME)
        assert ours["files"] == theirs["files"], task
