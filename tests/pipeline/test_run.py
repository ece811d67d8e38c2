"""What the runner prepares for a stage."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from ocm_core.pipeline import manifests
from ocm_core.pipeline.job import Job
from ocm_core.pipeline.run import run
from ocm_core.stages import encode


@pytest.fixture
def one_thread() -> Iterator[None]:
    yield
    torch.set_num_threads(1)


@pytest.mark.usefixtures("one_thread")
def test_a_stage_computes_in_the_job_s_threads(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found = []

    def stage(job: Job) -> None:
        found.append((job.threads, torch.get_num_threads()))

    monkeypatch.setattr(manifests, "ROOT", tmp_path)
    monkeypatch.setattr(encode, "run", stage)
    run("toy_mog9", "encode", "all", "cpu", threads=2)
    assert found == [(2, 2)]
