"""Copies of this repository with a shrunken `toy_mog9`, driven by the real Snakemake and DVC."""

import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import chdir, redirect_stdout
from io import StringIO
from pathlib import Path
from subprocess import PIPE, STDOUT
from typing import Any, Self

import pytest
import yaml

from ocm_core import cli
from ocm_core.params.compose import _compose
from ocm_core.pipeline import sources
from ocm_core.pipeline.graph import graph_of

ROOT = Path(__file__).resolve().parents[2]
NAME = "toy_mog9"
OVERLAY = f"params/experiment/{NAME}.yaml"
NOWHERE = "http://127.0.0.1:9"  # nothing listens there
HEADED = "ocm_relative"
GRID = {"nfe": [3], "guidance": [1.0]}
OPTIMISER = {"iterations": 200, "batch_size": 8, "checkpoint_every": 10}
FEW = {"draws": 8, "batch_size": 8}
SAMPLERS = {
    "ddpm": {"grids": [GRID], "methods": ["beta", "analytic", HEADED, "rademacher_10"]},
    "ddim": {"grids": [GRID], "methods": ["delta", HEADED]},
}
# The files of params/ that the shrunken experiment replaces as a whole.
METHODS = {
    **dict.fromkeys(("beta", "delta", "analytic")),
    HEADED: {"kind": "ocm", "head": {"baseline": "gaussian", "link": "positive"}},
    "rademacher_10": {"kind": "rademacher", "probes": 10},
}
SHRUNK = {
    "data": {"train_size": 64, "test_size": 64},
    "network": {"scores": ["trained"], "width": 8, "depth": 1},
    "head": {"sizes": {"width": 8, "depth": 1}},
    "train": {"score": OPTIMISER, "heads": OPTIMISER, "moments": FEW, "timesteps": None},
    "sample": {"count": 16, "batch_size": 16, "seeds": [0], "split": [], "samplers": SAMPLERS},
    "evaluate": {
        "covariance_error": {"times": [1, 500], "points": 8},
        **dict.fromkeys(("likelihood", "path_weights")),
    },
}
WIDER = {"evaluate": {"mmd": {"bandwidths": [0.5, 1.5]}}}
TASKS = (  # of the shrunken experiment
    *("encode/all", "score/trained", "moments/trained", "heads/trained", "sample/all"),
    *("mmd/all", "covariance_error/all", "report/all"),
)


class Project:
    """A checkout, and the tools as a user would call them in it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.env = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(root),
            "DVC_SITE_CACHE_DIR": f"{root}.site",
            "DVC_NO_ANALYTICS": "1",
            "OCM_DEVICE": "cpu",
            "OMP_NUM_THREADS": "1",
        }

    def run(self, *command: str, fails: bool = False) -> str:
        """Return what a command prints; its exit code must be 0, or not if it `fails`."""
        done = self._call(*command)
        said = done.stdout + done.stderr
        assert bool(done.returncode) == fails, f"{' '.join(command)}\n{said}"
        return said

    def _call(self, *command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, cwd=self.root, env=self.env, capture_output=True, text=True)

    def start(self, *command: str, **options: Any) -> subprocess.Popen[str]:
        """Start a command in a process group, so that it can be killed with its children."""
        options |= {"stdout": PIPE, "stderr": STDOUT, "text": True, "start_new_session": True}
        return subprocess.Popen(command, cwd=self.root, env=self.env, **options)

    def killed(self, sign: Path, *command: str) -> bool:
        """Kill -9 a command once the file `sign` exists; return False if it was quicker."""
        process = self.start(*command)
        while not sign.exists():
            if process.poll() is not None:
                assert process.returncode == 0, f"{sign} never existed"
                return False
            time.sleep(0.001)
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        self.run("snakemake", "--unlock")
        return True

    def git(self, *arguments: str) -> str:
        return self.run("git", *arguments)

    def commit(self, message: str) -> None:
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", message)

    def clone(self, root: Path) -> Self:
        subprocess.run(["git", "clone", "--quiet", str(self.root), str(root)], check=True)
        return type(self)(root)

    def copy(self, root: Path) -> Self:
        shutil.copytree(self.root, root, symlinks=True)
        return type(self)(root)

    def folder(self, task: str, name: str = NAME) -> Path:
        """Return the folder of an artifact, wherever its phase is."""
        (found,) = {*self.root.glob(f"artifacts/{name}/*/{task}")} or {self.root / task}
        return found

    def manifest(self, task: str, name: str = NAME) -> Any:
        return json.loads((self.folder(task, name) / "manifest.json").read_text())

    def edit(self, changes: dict[str, Any], file: str = OVERLAY) -> None:
        """Edit a file of parameters as a user would."""
        text = (self.root / file).read_text()
        package = "# @package _global_\n" if text.startswith("# @package _global_") else ""
        tree = _merge(yaml.safe_load(text), changes)
        plain = json.loads(json.dumps(tree))  # no anchors, which `dvc exp run -S` stumbles over
        (self.root / file).write_text(package + yaml.safe_dump(plain))

    def append(self, file: str, text: str) -> None:
        with (self.root / file).open("a") as stream:
            stream.write(text)

    def stale_in_snakemake(self) -> set[str]:
        """Return what Snakemake would run, as stage/part, with all that follows."""
        plan = self.run("snakemake", "--dry-run", "--quiet", "host")
        made = re.findall(rf"output: .*artifacts/{NAME}/\w+/(\S+)/manifest\.json", plan)
        pages = re.findall(rf"output: reports/{NAME}\.html", plan)
        return {*made, *("report/all" for _ in pages)}

    def states(self, name: str = NAME) -> dict[str, str]:
        """As `ocm status` says, but by this process, which has imported what takes its time."""
        said = StringIO()
        with chdir(self.root), redirect_stdout(said), pytest.MonkeyPatch.context() as patch:
            patch.setattr(cli, "_use_code_of_checkout", lambda words: None)  # it is the same
            forget()
            assert cli.main(["status", name, "--json"]) == 0
        forget()
        found: dict[str, str] = json.loads(said.getvalue())[name]
        return found

    def stale_in_status(self) -> set[str]:
        """Return the artifacts that `ocm status` does not call up to date."""
        stale = {task for task, state in self.states().items() if state != "up to date"}
        return stale - {"results"}

    def changed_in_dvc(self) -> set[str]:
        """Return the stages that DVC sees as changed themselves."""
        status = json.loads(self._call("dvc", "status", "--json").stdout)
        return {stage.removeprefix("dvc.yaml:").removesuffix(f"@{NAME}") for stage in status}

    def changed_phases(self) -> set[str]:
        """Return the phases that DVC would run for their own sake, once it has a new plan."""
        self.run("dvc", "repro", "--single-item", f"plan@{NAME}")
        return self.changed_in_dvc()

    def digests(self, name: str = NAME) -> dict[str, str]:
        """Return the manifests by task: the content of every artifact and report."""
        files = sorted(self.root.glob(f"artifacts/{name}/*/*/*/manifest.json"))
        return {"/".join(file.parts[-3:-1]): file.read_text() for file in files}

    def metrics(self, name: str = NAME) -> Any:
        return json.loads((self.root / f"reports/{name}/metrics.json").read_text())


def forget() -> None:
    """Forget what files were that another folder may have under the same names."""
    for cached in (_compose, graph_of, sources._file, sources._imports, sources._sha256):
        cached.cache_clear()


def _merge(tree: Any, changes: Any) -> Any:
    if not isinstance(tree, dict) or not isinstance(changes, dict):
        return changes
    return tree | {key: _merge(tree.get(key), value) for key, value in changes.items()}


def _build_once(project: Project, build: Callable[[], object]) -> Project:
    """Build what parallel test workers share; the others wait for the first, and fail with it."""
    with project.root.with_suffix(".built").open("a+") as record:
        fcntl.flock(record, fcntl.LOCK_EX)
        if not record.seek(0, os.SEEK_END):
            record.write("failed")
            record.flush()
            build()
            record.truncate(0)
            record.write("built")
        record.seek(0)
        assert record.read() == "built", f"{project.root} could not be built"
    return project


@pytest.fixture(scope="session")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that all test workers of this session share."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    (shared / "shelf").mkdir(exist_ok=True)
    return shared / "shelf"


@pytest.fixture(scope="session")
def empty(shelf: Path) -> Project:
    """The repository as it stands, shrunken and committed; nothing has been run."""
    project = Project(shelf / "empty")

    def build() -> None:
        copy_repository(project.root)
        (project.root / "params/active.yaml").write_text(f"active: [{NAME}]\n")
        project.edit({"methods": None}, "params/base/mixture.yaml")
        project.edit({"methods": METHODS}, "params/base/mixture.yaml")
        project.edit(SHRUNK)
        project.git("init", "--quiet", "--initial-branch=main")
        project.git("config", "user.name", "Test")
        project.git("config", "user.email", "test@example.org")
        project.run("dvc", "remote", "add", "--default", "store", str(shelf / "remote"))
        project.commit("nothing has been run")

    return _build_once(project, build)


def _copied(empty: Project, root: Path, *commands: str) -> Project:
    """A copy in which commands have been run."""
    project = Project(root)

    def build() -> None:
        empty.copy(root)
        for command in commands:
            project.run(*command.split())

    return _build_once(project, build)


@pytest.fixture(scope="session")
def made_by_snakemake(empty: Project, shelf: Path) -> Project:
    """An undisturbed run of Snakemake, committed and pushed. Do not edit it."""
    commands = ("snakemake --cores 2", "git add --all", "git commit --quiet -m first", "dvc push")
    return _copied(empty, shelf / "snakemake", *commands)


@pytest.fixture(scope="session")
def made_by_dvc(empty: Project, shelf: Path) -> Project:
    """An undisturbed `dvc repro` from nothing. Do not edit it."""
    return _copied(empty, shelf / "dvc", "dvc repro")


@pytest.fixture
def project(made_by_snakemake: Project, tmp_path: Path) -> Project:
    """A finished run of one's own, to be edited."""
    return made_by_snakemake.copy(tmp_path / "project")


@pytest.fixture(scope="session")
def finished(empty: Project, shelf: Path) -> Callable[..., Project]:
    """Copies in which one experiment has been run, without a network. Do not edit them.

    An overlay is an experiment of that name, to be run beside those of the repository.
    """

    def run(name: str, overlay: dict[str, Any] | None = None) -> Project:
        project = Project(shelf / name)
        project.env |= {"http_proxy": NOWHERE, "https_proxy": NOWHERE, "no_proxy": "127.0.0.1"}

        def build() -> None:
            empty.copy(project.root)
            if overlay is not None:
                file = project.root / f"params/experiment/{name}.yaml"
                file.write_text(f"# @package _global_\n{yaml.safe_dump(overlay)}")
            project.run("snakemake", "--cores", "2", f"reports/{name}.html")

        return _build_once(project, build)

    return run


def copy_repository(root: Path) -> None:
    """Copy what Git has or would have, without tests and results."""
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in names.splitlines():
        left_out = name.startswith(("tests/", "reports/", "models/", "dvc.lock"))
        published = name.startswith("reports/paper/")
        if (published or not left_out) and (ROOT / name).exists():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, root / name, follow_symlinks=False)
