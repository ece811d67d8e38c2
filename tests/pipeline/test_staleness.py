"""A change makes exactly what depends on it stale: in both tools, and in `ocm status`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.pipeline.conftest import Project

HEADS_ON = {"heads/learned", "sample/all", "evaluate_points/all", "evaluate_covariance/all"}


@pytest.fixture
def project(made_by_snakemake: Project, tmp_path: Path) -> Project:
    return made_by_snakemake.copy(tmp_path / "project")


@pytest.mark.parametrize(
    ("changes", "readers", "downstream"),
    [
        (
            {"methods": {"rademacher_10": {"probes": 20}}},
            {"sample/all", "evaluate_covariance/all", "report/all"},
            {"evaluate_points/all"},
        ),
        (
            {"train": {"heads": {"learning_rate": 0.002}}},
            {"heads/learned", "report/all"},
            HEADS_ON - {"heads/learned"},
        ),
        ({"report": {"title": "Another"}}, {"report/all"}, set()),
    ],
    ids=["method", "heads", "report"],
)
def test_changed_parameter(
    project: Project, changes: dict[str, object], readers: set[str], downstream: set[str]
) -> None:
    project.change(changes)
    assert project.stale_in_snakemake() == project.stale_in_status() == readers | downstream
    assert project.changed_in_dvc() == readers | {"params/all"}


@pytest.mark.parametrize(
    ("files", "users", "downstream"),
    [
        (
            "ocm_core/covariance/ocm.py",
            HEADS_ON - {"evaluate_points/all"},
            {"evaluate_points/all", "report/all"},
        ),
        (
            "ocm_core/covariance/rademacher.py",
            {"sample/all", "evaluate_covariance/all"},
            {"evaluate_points/all", "report/all"},
        ),
        ("ocm_core/stages/report.py", {"report/all"}, set()),
        ("ocm_core/covariance/sn.py ocm_core/networks/dit.py", set(), set()),
    ],
    ids=["ocm", "rademacher", "report", "not used"],
)
def test_edited_source(project: Project, files: str, users: set[str], downstream: set[str]) -> None:
    for name in files.split():
        with (project.root / name).open("a") as source:
            source.write("\n# edited\n")
    assert project.stale_in_snakemake() == project.stale_in_status() == users | downstream
    assert project.changed_in_dvc() == users


def test_status_says_what_each_artifact_waits_for(project: Project) -> None:
    assert project.stale_in_snakemake() == project.stale_in_status() == set()
    assert "toy_mog9 numbers: current" in project.run("ocm", "status").splitlines()
    project.change({"train": {"heads": {"learning_rate": 0.002}}})
    said = project.run("ocm", "status").splitlines()
    assert "toy_mog9 numbers: stale: made with other train.heads" in said
    assert "toy_mog9 moments/learned: current" in said
    assert "toy_mog9 heads/learned: stale: made with other parameters" in said
    assert "toy_mog9 sample/all: stale: heads/learned is stale" in said
    assert "toy_mog9 evaluate_points/all: stale: sample/all is stale" in said


def test_a_flipped_bit_in_a_shard_is_found_and_the_shard_is_named(project: Project) -> None:
    shard = "artifacts/toy_mog9/encode/all/train.zarr/x/c/0/0"
    content = bytearray((project.root / shard).read_bytes())
    content[len(content) // 2] ^= 1 << 3
    (project.root / shard).write_bytes(content)
    for command in (("verify", "toy_mog9"), ("run", "moments", "toy_mog9", "learned")):
        said = project.run("ocm", *command, fails=True)
        assert f"{shard}: changed, its sha256 is not the manifest's" in said


def test_a_stage_refuses_inputs_of_another_origin(project: Project) -> None:
    """Without Snakemake's records a changed parameter would go unnoticed upstream."""
    project.change({"train": {"score": {"learning_rate": 0.002}}})
    said = project.run("ocm", "run", "moments", "toy_mog9", "learned", fails=True)
    assert "artifacts/toy_mog9/score/learned: stale: made with other parameters" in said
    assert "snakemake --cores 1 --force artifacts/toy_mog9/score/learned/manifest.json" in said
    said = project.run("ocm", "run", "evaluate_points", "toy_mog9", fails=True)
    assert "artifacts/toy_mog9/sample/all: stale: score/learned, moments/learned and 1 more" in said
