"""Statistics from a published reference file instead of the training set, through the stages."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import torch
import yaml

from ocm_core.features import inception
from ocm_core.features.published_reference import REFERENCES
from ocm_core.metrics.frechet import Statistics
from tests.metrics.tiny_inception import TinyInception
from tests.pipeline.conftest import Project

NAME = "imagenet256_smoke"


def test_a_published_reference_set_replaces_the_training_set(
    empty: Project, tmp_path: Path
) -> None:
    project = empty.copy(tmp_path / "project")
    _choose_the_published_set(project)
    pixels = _write_files(project.root)
    for task in (("fetch_features",), ("fetch_reference",), ("reference", "inception")):
        project.run("ocm", "run", task[0], NAME, *task[1:])
    made = project.root / f"artifacts/{NAME}/reference/inception"
    network = torch.jit.load(project.root / inception.FOLDER / inception.FILE)
    shown = torch.from_numpy(pixels).permute(0, 3, 1, 2).float()
    expected = network(shown, return_features=True)
    torch.testing.assert_close(torch.from_numpy(np.load(made / "features.npy")), expected)
    statistics = Statistics.load(made / "statistics.npz")
    assert statistics.mean.tolist() == [0.5] * 2048 and statistics.count is None
    notes = json.loads((made / "manifest.json").read_text())["notes"]
    assert notes["published"]["file"] == REFERENCES["imagenet256"].file
    assert notes["manifold_images"] == 6 and notes["space"] == "inception (its own resizing)"


def _choose_the_published_set(project: Project) -> None:
    file = project.root / f"params/experiment/{NAME}.yaml"
    tree = yaml.safe_load(file.read_text())
    tree["evaluate"]["features"] = {"space": "inception", "reference": "imagenet256"}
    file.write_text(f"# @package _global_\n{yaml.safe_dump(tree)}")
    project.run("ocm", "params", "--write")


def _write_files(root: Path) -> np.ndarray:
    (root / inception.FOLDER).mkdir(parents=True)
    torch.jit.script(TinyInception()).save(root / inception.FOLDER / inception.FILE)
    pixels = np.random.default_rng(0).integers(0, 256, (6, 16, 16, 3), dtype=np.uint8)
    file = root / "datasets/references" / REFERENCES["imagenet256"].file
    file.parent.mkdir(parents=True)
    np.savez(file, arr_0=pixels, mu=np.full(2048, 0.5), sigma=np.eye(2048))
    return pixels
