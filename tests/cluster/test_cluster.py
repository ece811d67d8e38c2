"""Two smoke experiments on a cluster, by the shipped profile: what is lost, and what comes out."""

import fcntl
import json
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import pytest
import yaml

from ocm_core.doctor.machine import node_problems
from ocm_core.pipeline.stage import stages
from tests.cluster.slurm import GPUS, NODES, Slurm, stop_when
from tests.pipeline.conftest import NOWHERE, Project

pytestmark = pytest.mark.slow
PATIENCE = 1800.0  # seconds: a machine may be busy with other things
# A pixel and a latent smoke experiment with fewer jobs, as each costs some seconds: no selection of
# heads, optimal timesteps, standard deviations or counts; one job for all samples.
PIXELS, LATENTS = "cifar10_ls_few", "imagenet256_few"
ITERATIONS = 60  # of the heads, whose state is kept every ten
FEW: dict[str, Any] = {
    "train.heads.iterations": ITERATIONS,
    "train.selection": {"kind": "last"},
    "sample.split": [],
    "evaluate.posterior_std": None,
    "evaluate.operations": None,
    "evaluate.likelihood.timesteps": {"even": {"kind": "even"}},
}
# The profile asks every five seconds; of a controller of one's own one may ask more often.
CLUSTER = (
    *("snakemake", "--profile", "profiles/slurm"),
    *("--slurm-init-seconds-before-status-checks", "1"),
)
REPORTS = [f"reports/{name}.html" for name in (PIXELS, LATENTS)]
HEADS = f"artifacts/{PIXELS}/train/heads/pretrained/manifest.json"
# The first try at a reference set is past its limit after a minute, on a node that is not killed.
LIMITED = (
    *("--set-resources", "reference:runtime=1 + 60 * (attempt - 1)"),
    "reference:constraint=second",
)


def small(made: Project, folder: Path) -> Project:
    """Copy a project that needs no network, and add `few`, which is `smoke` with less in it."""
    project = made.copy(folder / "project")
    project.env |= {"GLOO_SOCKET_IFNAME": "lo", "http_proxy": NOWHERE, "no_proxy": "127.0.0.1"}
    presets = project.root / "params/preset"
    smoke = yaml.safe_load((presets / "smoke.yaml").read_text())
    (presets / "few.yaml").write_text(yaml.safe_dump(smoke | FEW, sort_keys=False))
    return project


class Run:
    """A command in a project, while a test does other things; it does not outlive the test."""

    def __init__(self, project: Project, *command: str) -> None:
        self.project = project
        self.file = project.root / "said.txt"
        with self.file.open("w") as said:
            self.process = subprocess.Popen(
                command, cwd=project.root, env=project.env, stdout=said, stderr=said
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.process.kill()
        self.process.wait()

    def ends(self) -> None:
        assert self.process.wait(PATIENCE) == 0, self.file.read_text()

    def goes_on_until(self, holds: Callable[[], bool], what: str) -> None:
        """Fails as soon as the run has ended without it."""
        deadline = time.monotonic() + PATIENCE
        while not holds():
            over = self.process.poll() is not None or time.monotonic() > deadline
            assert not over, f"no {what}: {self.file.read_text()}"
            time.sleep(0.2)


class Gate(ExitStack):
    """Keeps the job of a task waiting, as another run that makes the same artifact would."""

    def __init__(self, project: Project, slurm: Slurm, name: str, task: str) -> None:
        super().__init__()
        self.slurm = slurm
        stage, _, part = task.partition("/")
        self.rule = f"{stage}_{name}_{stage}_{part}"
        folder = project.root / "artifacts" / name / stages()[stage].phase
        self.staging = folder / stage / f".{part}.staging"
        self.log = project.root / f"logs/{name}/{task}.log"
        lock = folder / f".locks/{stage}-{part}.making"
        lock.parent.mkdir(parents=True, exist_ok=True)
        fcntl.flock(self.enter_context(lock.open("a")), fcntl.LOCK_EX)

    def stops(self, run: Run, holds: Callable[[], bool]) -> str:
        """Open, and let the job go on to that point, where it stands still; its id."""
        waiting = "waiting for that one to end"
        run.goes_on_until(
            lambda: self.log.exists() and waiting in self.log.read_text(), f"job at {self.log}"
        )
        run.goes_on_until(lambda: bool(self.slurm.job_of(self.rule)), f"job of {self.rule}")
        job = self.slurm.job_of(self.rule)
        self.close()
        assert stop_when(job, holds), f"{self.rule} had ended: {self.log.read_text()}"
        return job


@pytest.fixture(scope="module")
def project(empty: Project, slurm: Slurm, tmp_path_factory: pytest.TempPathFactory) -> Project:
    return small(empty, tmp_path_factory.mktemp("cluster"))


@pytest.fixture(scope="module")
def local(project: Project, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """Both experiments on this machine alone, while the cluster is at work."""
    copied = small(project, tmp_path_factory.mktemp("local"))
    with Run(copied, "nice", "snakemake", "--cores", "2", *REPORTS) as run:
        yield run


@pytest.fixture(scope="module")
def disturbed(project: Project, slurm: Slurm, local: Run) -> Project:
    """Both experiments, run through a killed node, a cancelled job and a time limit."""
    with (
        Gate(project, slurm, PIXELS, "heads/pretrained") as heads,
        Gate(project, slurm, LATENTS, "sample/all") as sample,
        Gate(project, slurm, PIXELS, "reference/efficientnet_lite0") as reference,
        Run(project, *CLUSTER, *REPORTS, *LIMITED) as run,
    ):
        job = heads.stops(run, lambda: (heads.staging / "state/training.safetensors").exists())
        node = slurm.node_of(job)
        slurm.kill_node(node)
        run.goes_on_until(lambda: slurm.has_ended(job, "NF"), "dead node")
        slurm.start_node(node)
        slurm.cancel(sample.stops(run, lambda: any(sample.staging.glob("artifact/*/*/x/c"))))
        run.goes_on_until(lambda: bool(slurm.job_of(reference.rule, "TO")), "job past its limit")
        reference.close()
        run.ends()
    slurm.wait_until(lambda: set(slurm.states().values()) == {"idle"}, "two idle nodes")
    return project


def test_what_is_lost_is_made_up_for(disturbed: Project) -> None:
    said = (disturbed.root / "said.txt").read_text()
    for state in ("NODE_FAIL", "CANCELLED", "TIMEOUT"):
        assert f"'{state}'" in said, said
    logs = disturbed.root / f"logs/{PIXELS}"
    assert (logs / "reference/efficientnet_lite0.try1.log").exists()
    begun, ended = (logs / f"heads/pretrained{end}.log" for end in (".try1", ""))
    first, last = (f": {done} of {ITERATIONS}" for done in (ITERATIONS // 10, ITERATIONS))
    assert first in begun.read_text() and last in ended.read_text()
    assert first not in ended.read_text()  # it went on from its checkpoint


@pytest.mark.parametrize("name", [PIXELS, LATENTS])
def test_every_manifest_is_a_local_run_s(disturbed: Project, local: Run, name: str) -> None:
    local.ends()
    expected = local.project.digests(name)
    assert len(expected) >= 10 and "report/all" in expected
    assert disturbed.digests(name) == expected
    assert "every file is as its manifest says" in disturbed.run("ocm", "verify", name)


def test_two_gpus_in_one_job(
    disturbed: Project, local: Run, tmp_path_factory: pytest.TempPathFactory
) -> None:
    local.ends()
    folder = tmp_path_factory.mktemp("two")
    places = (("node", disturbed), ("nodes", disturbed), ("here", local.project))
    one, two, here = (small(made, folder / name) for name, made in places)
    again = (*CLUSTER, "--force", HEADS, "--set-resources", "heads:gpu=2")
    with Run(one, *again) as on_a_node, Run(two, *again, "heads:nodes=2") as on_nodes:
        here.run("ocm", "run", "heads", PIXELS, "pretrained", "--processes", "2")
        on_a_node.ends()
        on_nodes.ends()
    expected = json.loads((here.root / HEADS).read_text())
    assert expected != json.loads((disturbed.root / HEADS).read_text())
    assert [json.loads((made.root / HEADS).read_text()) for made in (one, two)] == [expected] * 2


def test_nodes_say_what_they_lack_before_any_work(slurm: Slurm, project: Project) -> None:
    assert "2 nodes: folder, environment" in project.run("ocm", "doctor", "--nodes", "2")
    nowhere = Path("/nowhere/at/all")
    assert node_problems(2, folder=nowhere) == [
        f"{node}: no folder {nowhere} there" for node in NODES
    ]
    without = [f"{node}: no {nowhere} there: no environment" for node in NODES]
    assert node_problems(2, python=nowhere) == without
    assert node_problems(1, folder=Path("/"))[0].endswith("/ is another folder there: not shared")


def test_more_gpus_than_a_node_has(disturbed: Project) -> None:
    asked = ("--set-resources", f"heads:gpu={GPUS + 1}")
    said = disturbed.run(*CLUSTER, "--force", HEADS, *asked, fails=True)
    assert "Requested node configuration is not available" in said
