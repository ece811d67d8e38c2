"""Interrupted work resumes to the same bytes; of other parameters, unchanged cells are kept."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from ocm_core.pipeline.artifacts import folder_of
from ocm_core.pipeline.stage import Task
from tests.pipeline.conftest import GRID, HEADED, NAME, TASKS, Project

RUN = ("snakemake", "--cores", "1")
WHOLE = "every file is as its manifest says"
TRAINED = ("score/trained", "heads/trained")  # stages with checkpoints


def sign_of(project: Project, task: str) -> Path:
    """Return a file of the staging folder that exists once a stage is under way."""
    place = project.root / folder_of(NAME, Task(*task.split("/")))
    name = "state/training.safetensors" if task in TRAINED else "key"
    return place.with_name(f".{place.name}.staging") / name


def kill_at(project: Project, task: str) -> None:
    """Run everything, and kill -9 all of it in the middle of `task`."""
    folder = project.root / folder_of(NAME, Task(*task.split("/")))
    manifest, killed = folder / "manifest.json", False  # Snakemake makes empty folders beforehand
    while not killed or manifest.exists():  # it was quicker than the signal: once more
        if manifest.exists():  # nobody would ask for it again if there were a page
            shutil.rmtree(folder)
            shutil.rmtree(project.root / f"artifacts/{NAME}/report", ignore_errors=True)
            (project.root / f"reports/{NAME}.html").unlink(missing_ok=True)
        killed = project.killed(sign_of(project, task), *RUN)


@pytest.mark.parametrize(
    "tasks",
    [("heads/trained", "sample/all"), pytest.param(TASKS, marks=pytest.mark.slow)],
    ids=["two", "all"],
)
def test_killed_in_stages_a_run_ends_in_the_same_bytes(
    empty: Project, made_by_dvc: Project, tmp_path: Path, tasks: tuple[str, ...]
) -> None:
    project = empty.copy(tmp_path / "killed")
    for task in tasks:
        kill_at(project, task)
    project.run(*RUN)
    assert project.digests() == made_by_dvc.digests()
    assert WHOLE in project.run("ocm", "verify")
    assert not [*project.root.glob(f"artifacts/{NAME}/*/*/.*.staging")]


def test_an_interrupted_rerun_costs_nothing(project: Project) -> None:
    before, metrics = project.digests(), project.metrics()
    page = (project.root / f"reports/{NAME}.html").read_bytes()
    project.edit({"train": {"heads": {"learning_rate": 0.5}}})
    sign = sign_of(project, "heads/trained")
    assert project.killed(sign, *RUN)
    assert project.digests() == before and project.metrics() == metrics
    assert (project.root / f"reports/{NAME}.html").read_bytes() == page
    assert WHOLE in project.run("ocm", "verify")
    left = f"artifacts/{NAME}/train/heads/.trained.staging"
    assert left not in project.states(), "a run would resume from it"
    assert not project.run("ocm", "clean") and sign.exists()
    project.git("checkout", "--", "params")
    assert "left by an interrupted run" in project.states()[left]
    assert f"{left}: removed" in project.run("ocm", "clean")
    assert left not in project.states() and not sign.exists()
    project.run(*RUN)  # makes again what Snakemake knows to have been interrupted
    assert project.digests() == before


def test_a_rerun_that_fails_leaves_the_old_result(project: Project) -> None:
    before = project.digests()
    project.edit({"train": {"score": {"learning_rate": 1e9}}})
    assert "diverged" in project.run(*RUN, fails=True)
    assert project.digests() == before
    assert WHOLE in project.run("ocm", "verify")


STORES = [f"trained-{cell}-nfe3-seed0" for cell in ("ddpm-beta", f"ddpm-{HEADED}", "ddim-delta")]
GRIDS = [{**GRID, "nfe": [3, 5]}, {"nfe": [7]}]
DDPM = {"grids": GRIDS, "methods": ["beta_tilde", "beta", "analytic", HEADED, "rademacher_10"]}
THIRD = {"kind": "ddpm", "grids": [GRID], "methods": ["beta"]}
MORE: dict[str, dict[str, Any]] = {
    "more": {
        "methods": {"beta_tilde": {"kind": "beta_tilde"}},
        "sample": {"samplers": {"ddpm": DDPM, "third": THIRD}, "seeds": [1, 0], "count": 24},
    },
    "fewer": {"sample": {"samplers": {"ddpm": {"methods": ["beta", HEADED]}}}},
}
RECIPE = {
    "sample": {"samplers": {"ddim": {"eta": 0.5}}},
    "methods": {HEADED: {"probes": 2}, "rademacher_10": {"kind": "rademacher", "probes": 20}},
}


def inodes(project: Project) -> dict[str, set[int]]:
    """Return the files of every store of samples, without its metadata."""
    stores = [path for path in project.folder("sample/all").iterdir() if path.is_dir()]
    files = {store.name: [f for f in store.rglob("*") if f.is_file()] for store in stores}
    return {
        name: {file.stat().st_ino for file in found if file.name != "zarr.json"}
        for name, found in files.items()
    }


BY_SNAKEMAKE = ("snakemake", "--cores", "1", f"artifacts/{NAME}/sample/sample/all/manifest.json")
BY_HAND = ("ocm", "run", "sample", NAME)


@pytest.mark.parametrize(("more", "command"), [("more", BY_SNAKEMAKE), ("fewer", BY_HAND)])
def test_one_more_of_anything_redoes_no_other_cell(
    project: Project, more: str, command: tuple[str, ...]
) -> None:
    before, samples = inodes(project), project.manifest("sample/all")["files"]
    project.edit(MORE[more])
    project.run(*command)
    after = inodes(project)
    kept = before.keys() & after.keys()
    assert set(STORES) <= kept and after.keys() != before.keys()
    assert all(before[store] <= after[store] for store in kept)
    assert not any(after[store] & before.get(store, set()) for store in after.keys() - kept)
    files = project.manifest("sample/all")["files"]
    same = {name for name in files.keys() & samples.keys() if not name.endswith("zarr.json")}
    assert same and all(files[name] == samples[name] for name in same)


def test_changed_recipes_methods_and_heads_redo_their_cells(project: Project) -> None:
    before = inodes(project)
    project.edit(RECIPE)
    project.run("ocm", "run", "train", NAME)
    project.run("ocm", "run", "sample", NAME)
    after = inodes(project)
    changed = {store for store in before if after[store] != before[store]}
    redone = (HEADED, "ddim", "rademacher_10")
    assert changed == {store for store in before if any(name in store for name in redone)}
    assert changed < before.keys()
