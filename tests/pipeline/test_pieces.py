"""One more cell redoes only that cell: unchanged stores are taken over, file by file."""

from __future__ import annotations

from typing import Any

import pytest

from tests.pipeline.conftest import GRID, HEADED, NAME, Project

STORES = ["trained-ddpm-beta-nfe3", f"trained-ddpm-{HEADED}-nfe3", "trained-ddim-delta-nfe3"]
MORE: dict[str, dict[str, Any]] = {
    "more": {
        "methods": {"beta_tilde": {"kind": "beta_tilde"}},
        "sample": {
            "samplers": {
                "ddpm": {
                    "grids": [{**GRID, "nfe": [3, 5]}, {"nfe": [7]}],
                    "methods": ["beta_tilde", "beta", "analytic", HEADED, "rademacher_10"],
                },
                "third": {"kind": "ddpm", "grids": [GRID], "methods": ["beta"]},
            }
        },
    },
    "fewer": {"sample": {"samplers": {"ddpm": {"methods": ["beta", HEADED]}}}},
}


def inodes(project: Project) -> dict[str, set[int]]:
    """Return the files of every store of samples."""
    stores = [path for path in project.folder("sample/all").iterdir() if path.is_dir()]
    return {
        store.name: {file.stat().st_ino for file in store.rglob("*") if file.is_file()}
        for store in stores
    }


@pytest.mark.parametrize("more", MORE)
def test_one_more_of_anything_redoes_no_other_cell(project: Project, more: str) -> None:
    before, samples = inodes(project), project.manifest("sample/all")["files"]
    project.edit(MORE[more])
    project.run("ocm", "run", "sample", NAME)
    after = inodes(project)
    kept = before.keys() & after.keys()
    assert set(STORES) <= kept and after.keys() != before.keys()
    assert all(after[store] == before[store] for store in kept)
    assert not any(after[store] & before.get(store, set()) for store in after.keys() - kept)
    files = project.manifest("sample/all")["files"]
    assert all(files[name] == samples[name] for name in files.keys() & samples.keys())


@pytest.mark.parametrize(
    ("edit", "redone"),
    [
        ({"sample": {"clip": {"x0": 1.0}}}, "trained"),
        ({"methods": {HEADED: {"probes": 2}}}, HEADED),
        (
            {
                "sample": {"samplers": {"ddim": {"eta": 0.5}}},
                "methods": {"rademacher_10": {"kind": "rademacher", "probes": 20}},
            },
            "ddim rademacher_10",
        ),
    ],
    ids=["all", "head", "recipe and method"],
)
def test_a_changed_recipe_redoes_its_cells(
    project: Project, edit: dict[str, Any], redone: str
) -> None:
    before = inodes(project)
    project.edit(edit)
    project.run("ocm", "run", "train", NAME)
    project.run("ocm", "run", "sample", NAME)
    after = inodes(project)
    changed = {store for store in before if after[store] != before[store]}
    assert changed == {store for store in before if any(n in store for n in redone.split())}
