"""The images that distances compare with: the first of a set, or a published file."""

from pathlib import Path

import numpy as np
import pytest
import torch

from ocm_core.features import inception
from ocm_core.features.published_reference import REFERENCES
from ocm_core.params.compose import compose
from ocm_core.pipeline.stage import Task
from ocm_core.stages import fetch_features, fetch_reference, reference
from ocm_core.stages.reference import Reference
from tests.metrics.tiny_inception import TinyInception
from tests.stages.jobs import job_of


def test_a_published_reference_set_replaces_the_training_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    overrides = ["features.space=inception", "features.reference=imagenet256"]
    experiment = compose("imagenet256_smoke", overrides)
    monkeypatch.chdir(tmp_path)
    pixels = _write_files(tmp_path)
    fetched, folders = job_of(experiment, Task("fetch_features"), tmp_path / "one"), {}
    fetch_features.run(fetched)
    folders[fetched.task] = fetched.folder
    published = job_of(experiment, Task("fetch_reference"), tmp_path / "two")
    fetch_reference.run(published)
    folders[published.task] = published.folder
    job = job_of(experiment, Task("reference", "inception"), tmp_path / "three", folders)
    reference.run(job)
    network = torch.jit.load(inception.FOLDER / inception.FILE)
    shown = torch.from_numpy(pixels).permute(0, 3, 1, 2).float()
    statistics, manifold = Reference(job.folder).load()
    torch.testing.assert_close(manifold.points, network(shown, return_features=True))
    assert statistics.mean.tolist() == [0.5] * 2048 and statistics.count is None
    assert job.notes["published"]["file"] == REFERENCES["imagenet256"].file
    assert job.notes["manifold_images"] == 6
    assert job.notes["space"] == "inception (its own resizing)"


def _write_files(root: Path) -> np.ndarray:
    (root / inception.FOLDER).mkdir(parents=True)
    torch.jit.script(TinyInception()).save(root / inception.FOLDER / inception.FILE)
    pixels = np.random.default_rng(0).integers(0, 256, (6, 16, 16, 3), dtype=np.uint8)
    file = root / "datasets/references" / REFERENCES["imagenet256"].file
    file.parent.mkdir(parents=True)
    np.savez(file, arr_0=pixels, mu=np.full(2048, 0.5), sigma=np.eye(2048))
    return pixels
