"""Stages that several processes do together end in what one process alone makes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

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


def test_two_processes_draw_the_samples_of_one(project: Project) -> None:
    alone = files(project, "sample/all")
    project.run("ocm", "run", "sample", NAME, "all", "--processes", "2")
    assert files(project, "sample/all") == alone


def test_two_processes_train_the_heads_of_one(project: Project) -> None:
    file = project.root / f"artifacts/{NAME}/heads/learned/heads.safetensors"
    alone = load_file(file)
    project.run("ocm", "run", "heads", NAME, "learned", "--processes", "2")
    together = load_file(file)
    assert together.keys() == alone.keys()
    for name, values in alone.items():
        np.testing.assert_allclose(together[name], values, rtol=1e-3, atol=1e-4)


def test_a_stage_for_one_process_says_so(project: Project) -> None:
    said = project.run("ocm", "run", "moments", NAME, "learned", "--processes", "2", fails=True)
    assert "stage 'moments' is done by one process" in said
