"""Which heads are chosen among those that training has kept."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from ocm_core.artifacts.heads import HEADS_FILE, kept_file
from ocm_core.params.resolved import load
from ocm_core.stages.selection import Candidate, _save, best, candidates


def test_every_method_has_a_candidate_at_every_kept_iteration() -> None:
    found = candidates(load("cifar10_ls_smoke"))
    assert [c.iteration for c in found if c.label == "ocm"] == [10, 20]


def test_each_method_has_its_own_best_iteration() -> None:
    fid = {
        Candidate("ocm", 10): 7.0,
        Candidate("ocm", 20): 5.0,
        Candidate("ocm", 30): 6.0,
        Candidate("sn", 10): 4.0,
        Candidate("sn", 20): 9.0,
    }
    assert best(fid) == {"ocm": 20, "sn": 10}


def test_of_equals_the_earliest_is_chosen() -> None:
    fid = {Candidate("ocm", 20): 5.0, Candidate("ocm", 10): 5.0, Candidate("ocm", 30): 6.0}
    assert best(fid) == {"ocm": 10}


def test_chosen_heads_are_of_their_iterations_and_readable_as_other_files(tmp_path: Path) -> None:
    for iteration in (10, 20):
        values = {f"{label}.w": torch.tensor([float(iteration)]) for label in ("ocm", "sn")}
        file = kept_file(tmp_path / "heads", iteration)
        file.parent.mkdir(parents=True, exist_ok=True)
        save_file(values, file)
    job: Any = SimpleNamespace(
        inputs={"heads/learned": tmp_path / "heads"}, part="learned", folder=tmp_path / "made"
    )
    job.folder.mkdir()
    _save(job, {"ocm": 20, "sn": 10}, {Candidate("ocm", 20): 5.0, Candidate("sn", 10): 4.0})
    assert load_file(job.folder / HEADS_FILE) == {"ocm.w": 20.0, "sn.w": 10.0}
    other = tmp_path / "other"
    other.touch()
    assert {file.stat().st_mode for file in job.folder.iterdir()} == {other.stat().st_mode}
