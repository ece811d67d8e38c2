"""Stages that several processes do together end in what one process alone makes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from ocm_core.pipeline.run import PLANNED
from tests.pipeline.conftest import NAME, Project


@pytest.fixture
def project(made_by_snakemake: Project, tmp_path: Path) -> Project:
    copied = made_by_snakemake.copy(tmp_path / "project")
    copied.env |= {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    return copied


def files(project: Project, task: str) -> dict[str, str]:
    manifest = project.root / f"artifacts/{NAME}/{task}/manifest.json"
    return {
        name: entry["sha256"] for name, entry in json.loads(manifest.read_text())["files"].items()
    }


def test_two_processes_find_what_another_run_has_made(project: Project) -> None:
    project.env |= {PLANNED: "0"}
    said = project.run("ocm", "run", "sample", NAME, "all", "--processes", "2")
    assert f"artifacts/{NAME}/sample/all: another run has made it in the meantime" in said


def test_two_processes_draw_the_samples_of_one(project: Project) -> None:
    alone = files(project, "sample/all")
    project.run("ocm", "run", "sample", NAME, "all", "--processes", "2")
    assert files(project, "sample/all") == alone


def test_two_processes_train_the_heads_of_one(project: Project) -> None:
    """With a log, as in every rule; `torchrun` would take `--log` for an option of its own."""
    file = project.root / f"artifacts/{NAME}/heads/learned/heads.safetensors"
    alone = load_file(file)
    options = ("--processes", "2", "--log", "logs/together.log")
    said = project.run("ocm", "run", "heads", NAME, "learned", *options)
    logged = (project.root / "logs/together.log").read_text()
    assert logged.count("start") == said.count(f"heads {NAME} learned: start") == 1
    together = load_file(file)
    manifest = json.loads(file.with_name("manifest.json").read_text())
    assert manifest["notes"]["processes"] == 2 and "threads" not in manifest["notes"]
    assert together.keys() == alone.keys()
    for name, values in alone.items():
        np.testing.assert_allclose(together[name], values, rtol=1e-3, atol=1e-4)


def test_the_log_of_a_failed_try_stays(project: Project) -> None:
    file = project.root / "logs/encode.log"
    command = ("ocm", "run", "encode", NAME, "--log", "logs/encode.log")
    project.run(*command, "--processes", "2", fails=True)
    file.unlink()  # as Snakemake does before the next try
    project.run(*command)
    names = sorted(found.name for found in file.parent.glob("encode.*"))
    assert names == ["encode.log", "encode.try1.log"]
    kept = file.with_name("encode.try1.log").read_text()
    assert "is done by one process" in kept and "is done by one process" not in file.read_text()


def test_nodes_are_slurm_s_to_give(project: Project) -> None:
    command = ("ocm", "run", "heads", NAME, "learned", "--gpus", "4", "--nodes")
    assert "--nodes 2: this is no job of SLURM" in project.run(*command, "2", fails=True)
    assert "each node has to get as many" in project.run(*command, "3", fails=True)


def test_two_processes_compute_the_moments_of_one(project: Project) -> None:
    alone = files(project, "moments/learned")
    project.run("ocm", "run", "moments", NAME, "learned", "--processes", "2")
    assert files(project, "moments/learned") == alone


def test_a_stage_for_one_process_says_so(project: Project) -> None:
    said = project.run("ocm", "run", "encode", NAME, "--processes", "2", fails=True)
    assert "stage 'encode' is done by one process" in said
