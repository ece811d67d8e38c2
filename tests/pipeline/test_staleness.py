"""A change makes what depends on it stale, as docs/tour.md says, in all tools."""

import json
import os
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from ocm_core.errors import OcmError
from ocm_core.params.compose import compose
from ocm_core.pipeline import state
from ocm_core.pipeline.graph import Graph
from ocm_core.pipeline.state import number_digests, results_state
from tests.docs.test_tour import rows
from tests.pipeline.conftest import GRID, HEADED, NAME, WIDER, Project

SAMPLES_ON = {"sample/all", "mmd/all", "report/all"}
HEADS = {"heads/trained"}
HEADS_ON = {*HEADS, "covariance_error/all", *SAMPLES_ON}
UNUSED = ("covariance/sn", "networks/dit")
PLUMBING = ("pipeline/stage", "params/edits", "schema/block", "commands/run")
SAMPLED = (SAMPLES_ON, {"sample", "evaluate", "report"})
METHOD = {"methods": {"sn_relative": {"kind": "sn", "head": {"baseline": "gaussian"}}}}
BETTER = {"sample": {"samplers": {"ddpm": {"methods": ["beta", HEADED, "sn_relative"]}}}}
Edit = tuple[dict[str, Any] | tuple[str, ...], set[str], set[str]]
EDITS: dict[str, Edit] = {  # by rows of the tour: an edit, what is stale, phases of DVC
    "a parameter": (
        {"train": {"heads": {"learning_rate": 0.002}}, **WIDER},
        HEADS_ON,
        {"train", "evaluate", "report"},
    ),
    "one more or fewer `nfe`, sampler, guidance scale or seed": (  # and options of a method
        {
            "sample": {"seeds": [1], "samplers": {"ddim": {"grids": [{**GRID, "nfe": [3, 5]}]}}},
            "methods": {"rademacher_10": {"kind": "rademacher", "probes": 20}},
        },
        HEADS_ON - HEADS,  # the error is that of the samplers' methods
        {"sample", "evaluate", "report"},
    ),
    "more samples (`count`)": ({"sample": {"count": 24}}, *SAMPLED),
    "one more or fewer method with a head": (
        {**METHOD, **BETTER},
        HEADS_ON,
        {"train", "sample", "evaluate", "report"},
    ),
    "a source file": (("covariance/ocm",), HEADS_ON, {"train", "sample", "evaluate", "report"}),
    "a source file of sampling": (("sampling/order",), SAMPLES_ON, {"sample"}),
    "`pipeline/`, `params/`, `schema/`, `commands/`": ((*PLUMBING, *UNUSED), set(), set()),
    "`report.title`, or code of the page": (("stages/report",), {"report/all"}, {"report"}),
    "a new measure in an existing stage": (
        ("stages/mmd",),
        {"mmd/all", "report/all"},
        {"evaluate"},
    ),
}
ELSEWHERE = {"one more or fewer method, rule or `nfe` of the likelihood"}  # tests/stages


@pytest.mark.parametrize("edit", EDITS)
def test_an_edit_makes_its_readers_and_what_follows_stale(project: Project, edit: str) -> None:
    changed, stale, phases = EDITS[edit]
    if isinstance(changed, dict):
        project.edit(changed)
    else:
        for name in changed:
            project.append(f"ocm_core/{name}.py", "\n# edited\n")
    assert project.stale_in_snakemake() == project.stale_in_status() == stale
    assert project.changed_phases() == phases


def test_the_tour_s_table_is_that_of_the_edits() -> None:
    assert {row[0] for row in rows("What an edit reruns")} - EDITS.keys() == ELSEWHERE


def test_an_artifact_that_was_made_again_makes_its_readers_stale(project: Project) -> None:
    project.run("ocm", "run", "score", NAME, "trained")
    assert project.stale_in_status() == set(), "the same bytes"
    manifest = project.folder("score/trained") / "manifest.json"
    manifest.write_text(manifest.read_text() + " ")
    assert project.states()["score/trained"] == "stale: its manifest is damaged"
    assert project.states()["heads/trained"].startswith("stale: made with other inputs; score/")


def test_status_says_what_each_artifact_waits_for(project: Project) -> None:
    assert project.stale_in_snakemake() == project.stale_in_status() == set()
    assert project.states()["results"] == "up to date"
    project.edit({"train": {"heads": {"learning_rate": 0.002}}})
    states = project.states()
    assert states["results"] == "stale: made with other train.heads"
    assert states["moments/trained"] == "up to date"
    assert states["heads/trained"] == "stale: made with other parameters"
    assert states["sample/all"] == "stale: heads/trained is stale"
    assert states["mmd/all"] == "stale: sample/all is stale"
    said = project.run("ocm", "status").splitlines()
    assert f"{NAME} sample/all: stale: heads/trained is stale" in said


def test_a_stage_refuses_inputs_of_another_origin(project: Project) -> None:
    project.edit({"train": {"score": {"learning_rate": 0.002}}})
    score = f"artifacts/{NAME}/train/score/trained"
    said = project.run("ocm", "run", "moments", NAME, "trained", fails=True)
    assert f"{score}: stale: made with other parameters" in said
    assert f"snakemake --cores all --force {score}/manifest.json" in said
    said = project.run("ocm", "run", "mmd", NAME, fails=True)
    assert f"artifacts/{NAME}/sample/sample/all: stale: score/trained and 2 more are stale" in said


def test_a_flipped_bit_is_found_and_its_file_is_named(project: Project) -> None:
    place = project.folder("encode/all") / "train.zarr/x/c"
    shard = next(file for file in place.rglob("*") if file.is_file())
    content, times = bytearray(shard.read_bytes()), shard.stat()
    content[len(content) // 2] ^= 1 << 3
    shard.write_bytes(content)
    os.utime(shard, ns=(times.st_atime_ns, times.st_mtime_ns))
    name, lock = str(shard.relative_to(project.root)), (project.root / "dvc.lock").read_text()
    for command in (("verify", NAME), ("run", "moments", NAME, "trained"), ("sync",)):
        said = project.run("ocm", *command, fails=True)
        assert f"{name}: changed, its sha256 is not the manifest's" in said
    manifest = project.folder("encode/all").relative_to(project.root) / "manifest.json"
    assert f"`snakemake --cores 1 --force {manifest}` makes it again" in said
    assert (project.root / "dvc.lock").read_text() == lock


def test_missing_extra_and_edited_files_are_found(project: Project) -> None:
    encoded = project.folder("encode/all")
    (encoded / "stray").touch()
    (encoded / "test.zarr/zarr.json").unlink()
    manifest = project.folder("mmd/all") / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"torch": "', '"torch": "0'))
    project.append(f"reports/{NAME}/results.csv", "\n")
    said = project.run("ocm", "verify", fails=True)
    assert "encode/all/stray: extra" in said and "zarr.json: missing" in said
    assert "mmd/all/manifest.json: damaged: not as it was written" in said
    assert f"reports/{NAME}/results.csv: changed" in said
    assert "4 differences" in said


def written(folder: Path, *overrides: str) -> Path:
    """Leave in a folder what a report of these parameters leaves."""
    file = folder / "digits" / state.PROVENANCE
    file.parent.mkdir()
    file.write_text(json.dumps(number_digests(Graph(compose("digits", overrides)))))
    return file


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("train.heads.learning_rate=0.125", "stale: made with other train.heads"),
        ("methods.rademacher_1.probes=2", "stale: made with other methods.rademacher_1"),
        ("report.title=Another", "up to date"),
    ],
)
def test_what_makes_results_stale(override: str, expected: str, tmp_path: Path) -> None:
    assert results_state(Graph(compose("digits")), tmp_path) == "missing"
    written(tmp_path, override)
    assert results_state(Graph(compose("digits")), tmp_path) == expected


def test_other_sources_but_the_page_s_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path)
    monkeypatch.setattr(state, "digest", digest := Mock(return_value="other sources"))
    assert results_state(Graph(compose("digits")), tmp_path) == "stale: made with other sources"
    counted = {str(file) for file in digest.call_args.args[0]}
    assert {"ocm_core/metrics/frechet.py", "ocm_core/training/loop.py"} <= counted
    assert not [name for name in counted if "/report" in name]


@pytest.mark.parametrize("text", ["", "[]", "{", "3", '{"parameters": 3}', '{"sources": []}'])
def test_a_broken_file_is_named_or_stale(text: str, tmp_path: Path) -> None:
    written(tmp_path).write_text(text)
    try:
        assert results_state(Graph(compose("digits")), tmp_path).startswith("stale")
    except OcmError as error:
        assert "digits/provenance.json" in str(error)
