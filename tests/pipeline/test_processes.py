"""Several processes make what one alone makes; GPUs are given to one job at a time."""

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from subprocess import PIPE, Popen
from threading import Timer
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from ocm_core import cli, launch
from ocm_core.distributed import Rank
from ocm_core.errors import OcmError
from ocm_core.io.checksums import sha256_of
from ocm_core.launch import VISIBLE
from ocm_core.pipeline import artifacts
from ocm_core.pipeline import job as runner
from ocm_core.stages import encode
from tests.pipeline.conftest import GRID, NAME, ROOT, Project
from tests.pipeline.test_interruption import inodes

TWO = ("--processes", "2")


@pytest.fixture
def project(made_by_snakemake: Project, tmp_path: Path) -> Project:
    copied = made_by_snakemake.copy(tmp_path / "project")
    copied.env |= {"GLOO_SOCKET_IFNAME": "lo"}
    return copied


def test_two_processes_compute_what_one_computes(project: Project) -> None:
    alone = project.manifest("moments/trained")["files"]
    shutil.rmtree(project.folder("moments/trained"))
    project.run("ocm", "run", "moments", NAME, "trained", *TWO)
    assert project.manifest("moments/trained")["files"] == alone


def test_two_processes_draw_only_the_cells_that_are_not_there(
    project: Project, tmp_path: Path
) -> None:
    alone, before = project.copy(tmp_path / "alone"), inodes(project)
    for each, options in ((project, TWO), (alone, ())):
        each.edit({"sample": {"samplers": {"ddpm": {"grids": [{**GRID, "nfe": [3, 5]}]}}}})
        each.run("ocm", "run", "sample", NAME, "all", *options)
    assert project.manifest("sample/all")["files"] == alone.manifest("sample/all")["files"]
    assert all(inodes(project)[store] == files for store, files in before.items())


def test_two_processes_train_the_heads_of_one(project: Project) -> None:
    """With a log, as in every rule; `torchrun` would take `--log` for an option of its own."""
    file = project.folder("heads/trained") / "heads/ocm_relative.safetensors"
    alone = load_file(file)
    said = project.run("ocm", "run", "heads", NAME, "trained", *TWO, "--log", "logs/together.log")
    logged = (project.root / "logs/together.log").read_text()
    assert logged.count("start") == said.count(f"heads {NAME} trained: start") == 1
    together, notes = load_file(file), project.manifest("heads/trained")["notes"]
    assert notes["processes"] == 2 and "threads" not in notes
    assert together.keys() == alone.keys()
    for name, values in alone.items():
        np.testing.assert_allclose(together[name], values, rtol=1e-3, atol=1e-4)


def test_the_log_of_a_failed_try_stays(project: Project) -> None:
    file = project.root / "logs/encode.log"
    command = ("ocm", "run", "encode", NAME, "all", "--log", "logs/encode.log")
    project.run(*command, *TWO, fails=True)
    file.unlink()  # as Snakemake does before the next try
    project.run(*command)
    names = sorted(found.name for found in file.parent.glob("encode.*"))
    assert names == ["encode.log", "encode.try1.log"]
    kept = file.with_name("encode.try1.log").read_text()
    assert "stage 'encode' is done by one process" in kept
    assert "is done by one process" not in file.read_text()


def test_nodes_are_slurm_s_to_give(project: Project) -> None:
    command = ("ocm", "run", "heads", NAME, "trained", "--gpus", "4", "--nodes")
    assert "--nodes 2: this is no job of SLURM" in project.run(*command, "2", fails=True)
    assert "each node has to get as many" in project.run(*command, "3", fails=True)


def test_on_several_nodes_srun_starts_one_torchrun_each(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[tuple[list[str], dict[str, str]]] = []
    monkeypatch.setattr(launch, "_become", lambda *call: begun.append(call))
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("SLURM_STEP_ID", "3")  # of the step that this process is in
    launch.on_nodes(2, 8, ["run", "heads", "digits"])
    ((command, environment),) = begun
    assert command[:3] == ["srun", "--nodes=2", "--ntasks=2"]
    assert {"--nnodes=2", "--nproc-per-node=4", "--rdzv-id=7"} <= set(command)
    assert command[-5:] == ["--", "ocm_core.cli", "run", "heads", "digits"]
    assert "SLURM_JOB_ID" in environment and "SLURM_STEP_ID" not in environment


def test_a_stage_has_the_job_s_threads(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found = []
    monkeypatch.setattr(artifacts, "ROOT", tmp_path)
    monkeypatch.setattr(
        encode, "run", lambda job: found.append((job.threads, torch.get_num_threads()))
    )
    runner.run_task("toy_mog9", "encode", "all", "cpu", threads=2)
    torch.set_num_threads(1)
    assert found == [(2, 2)]
    manifest = json.loads((tmp_path / "toy_mog9/encode/encode/all/manifest.json").read_text())
    assert manifest["notes"] == {"threads": 2}


class SecondOfTwo(Rank):
    """The second of two processes; the first one has decided already."""

    def __init__(self, decision: object) -> None:
        super().__init__(index=1, world_size=2)
        object.__setattr__(self, "decision", decision)

    def agreed(self, decide: Callable[[], Any]) -> Any:
        return self.decision


def test_an_old_view_of_a_shared_disk_is_waited_for(tmp_path: Path) -> None:
    new, state = tmp_path / "new", tmp_path / "state/training.safetensors"
    state.parent.mkdir()
    new.write_text("iteration 80")
    state.write_text("iteration 70")
    second = SecondOfTwo({state.name: sha256_of(new)})
    Timer(0.3, lambda: new.rename(state)).start()
    launch.await_first(second, state.parent, patience=20.0)
    assert state.read_text() == "iteration 80"
    for rank in (SecondOfTwo({}), Rank()):
        launch.await_first(rank, tmp_path / "nothing", patience=0.2)


@pytest.mark.parametrize("decision", [{}, {"training.safetensors": "0" * 64}])
def test_a_disk_that_is_not_shared_is_refused(tmp_path: Path, decision: dict[str, str]) -> None:
    (tmp_path / "training.safetensors").write_text("iteration 70")
    with pytest.raises(OcmError, match=r"other files than the first process sees, even after 0 s"):
        launch.await_first(SecondOfTwo(decision), tmp_path, patience=0.2)


HOLD = """
import sys
from ocm_core.errors import OcmError
from ocm_core.launch import reserve
try:
    print(reserve(int(sys.argv[1])), flush=True)
except OcmError as error:
    print(error, flush=True)
sys.stdin.read()
"""
Hold = Callable[..., tuple[str, Popen[str]]]


@pytest.fixture
def hold(tmp_path: Path) -> Iterator[Hold]:
    """Start processes that reserve GPUs and keep them until they are ended."""
    with ExitStack() as stack:

        def start(count: int, names: str, **more: str) -> tuple[str, Popen[str]]:
            command = [sys.executable, "-c", HOLD, str(count)]
            env = {**os.environ, VISIBLE: names, "TMPDIR": str(tmp_path), **more}
            process = Popen(command, cwd=ROOT, env=env, stdin=PIPE, stdout=PIPE, text=True)
            stack.callback(process.communicate)
            stack.callback(process.kill)
            assert process.stdout
            return process.stdout.readline().strip(), process

        yield start


def test_no_gpu_is_given_twice(hold: Hold) -> None:
    first, process = hold(1, "3,5,MIG-GPU-aa/1/0")
    second, _ = hold(2, "3,5,MIG-GPU-aa/1/0")
    assert (first, second) == ("3", "5,MIG-GPU-aa/1/0")
    assert "only 0 of 3 are free" in hold(1, "3,5,MIG-GPU-aa/1/0")[0]
    process.kill()
    process.wait()
    assert hold(1, "3,5,MIG-GPU-aa/1/0")[0] == "3"
    assert "--gpus 2: only 1 of 1 are free" in hold(2, "8")[0]


def test_allocations_do_not_get_into_each_other_s_way(hold: Hold) -> None:
    assert hold(1, "0", SLURM_JOB_ID="7")[0] == hold(1, "0", SLURM_JOB_ID="8")[0] == "0"
    assert "only 0 of 1 are free" in hold(1, "0", SLURM_JOB_ID="7")[0]


def test_gpus_are_those_of_the_cluster_s_assignment_or_of_the_driver(tmp_path: Path) -> None:
    for count in (launch.available, launch.seen):
        assert count({VISIBLE: "1,4"}) == ["1", "4"]
        assert count({VISIBLE: ""}) == count({VISIBLE: "-1"}) == []
    for name in ("nvidia0", "nvidia2", "nvidia10", "nvidiactl", "nvidia-uvm", "sda1"):
        (tmp_path / name).touch()
    assert launch.seen({}, tmp_path) == ["0", "2", "10"]


@pytest.mark.parametrize(
    ("options", "visible", "device"),
    [
        ([], "3,5", "auto"),  # by hand: whatever there is
        (["--gpus", "0"], "", "cpu"),
        (["--gpus", "0", "--device", "mps"], "", "mps"),
        (["--gpus", "1"], "3", "auto"),
    ],
)
def test_what_a_job_sees(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, options: list[str], visible: str, device: str
) -> None:
    jobs = []
    monkeypatch.setenv(VISIBLE, "3,5")
    monkeypatch.setenv("OCM_DEVICE", "auto")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(runner, "run_task", lambda *job: jobs.append((os.environ[VISIBLE], job)))
    assert cli.main(["run", "encode", "toy_mog9", "all", *options]) == 0
    assert jobs == [(visible, ("toy_mog9", "encode", "all", device, 1))]
