"""The closure of a stage's sources: complete, minimal, and checked while the stage runs."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ocm_core.errors import OcmError
from ocm_core.pipeline import sources
from ocm_core.pipeline.graph import graph_of
from ocm_core.pipeline.stage import Task
from tests.pipeline.conftest import forget

FILES = {
    "__init__.py": "",
    "alpha.py": "import os\nfrom ocm_core.inner import beta\n",
    "inner/__init__.py": "from ocm_core import gamma\n",
    "inner/beta.py": "def late():\n    import ocm_core.delta\n",
    "gamma.py": "from ocm_core.schema.experiment import Experiment\n",
    "delta.py": "",
    "unused.py": "",
    "relative.py": "from . import alpha\n",
    "stages/__init__.py": "",
    "stages/one.py": "from ocm_core.stages.two import Two\ndef run(job):\n    Two()\n",
    "stages/two.py": "from ocm_core.stages._shared import other\n"
    "from ocm_core.alpha import x\nTABLE = {0: x}\n"
    "if TYPE_CHECKING:\n    import ocm_core.unused\n"
    "class Two:\n    def load(self):\n        _help()\n"
    "def _help():\n    import ocm_core.gamma\n"
    "def _takes(experiment):\n    import ocm_core.alpha\n"
    "STAGE: Stage = Stage(__name__, takes=_takes, reads=TABLE)\n"
    "def run(job):\n    other(STAGE)\n",
    "stages/_shared.py": "def other():\n    import ocm_core.delta\n",
}


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package of the same name in an empty folder."""
    for name, text in FILES.items():
        file = tmp_path / "ocm_core" / name
        file.parent.mkdir(exist_ok=True, parents=True)
        file.write_text(text)
    monkeypatch.chdir(tmp_path)
    forget()
    yield tmp_path / "ocm_core"
    forget()


@pytest.mark.parametrize(
    ("module", "names"),
    [
        ("alpha", ("__init__", "alpha", "delta", "gamma", "inner/__init__", "inner/beta")),
        ("stages._shared", ("__init__", "delta", "stages/__init__", "stages/_shared")),
        # of another stage its file counts, and what its artifact calls
        ("stages.one", ("__init__", "gamma", "stages/__init__", "stages/one", "stages/two")),
        ("stages.two", ("__init__", "delta", "stages/__init__", "stages/_shared", "stages/two")),
    ],
)
def test_a_closure_follows_late_imports(package: Path, module: str, names: tuple[str, ...]) -> None:
    found = {file.as_posix() for file in sources.sources([f"ocm_core.{module}"])}
    assert found == {f"ocm_core/{name}.py" for name in names}


def test_a_digest_changes_with_the_content_and_with_the_name(package: Path) -> None:
    before = sources.digest(sources.sources(["ocm_core.gamma"]))
    (package / "gamma.py").write_text("x = 1\n")
    sources._sha256.cache_clear()
    after = sources.digest(sources.sources(["ocm_core.gamma"]))
    assert len({before, after, sources.digest([])}) == 3


def test_what_cannot_be_followed_is_refused(package: Path) -> None:
    with pytest.raises(OcmError, match=r"relative\.py:1: a relative import"):
        sources.sources(["ocm_core.relative"])
    with pytest.raises(OcmError, match=r"ocm_core/absent\.py: no such module"):
        sources.sources(["ocm_core.absent"])


def test_a_module_that_is_not_declared_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    before = sources.loaded()
    monkeypatch.setitem(sys.modules, "ocm_core.smuggled", sys)
    with pytest.raises(OcmError, match=r"loaded ocm_core\.smuggled .* ocm_core/stages/encode\.py"):
        sources.check_loaded(before, ["ocm_core.stages.encode"], "encode")
    sources.check_loaded([*before, "ocm_core.smuggled"], ["ocm_core.stages.encode"], "encode")


def test_methods_that_are_not_used_are_no_sources() -> None:
    names = {file.stem for file in graph_of("toy_mog9").source_files(Task("heads", "trained"))}
    assert {"ocm", "mlp", "heads"} <= names
    assert not {"rademacher", "exact_full", "dit", "report", "stage", "schema"} & names


# as many files as these stages of `digits` may have; an edge that should not be there shows here
MOST = {"encode": 25, "classifier": 45, "reference": 35, "distances": 52}


@pytest.mark.parametrize("stage", MOST)
def test_few_files_are_behind_a_stage_that_neither_samples_nor_trains_a_score(stage: str) -> None:
    graph = graph_of("digits")
    for task in (task for task in graph.tasks if task.stage == stage):
        files = [file.as_posix() for file in graph.source_files(task)]
        assert len(files) <= MOST[stage], files
        for folder in ("sampling", "covariance", "networks", "likelihood"):
            used = [file for file in files if file.startswith(f"ocm_core/{folder}/")]
            assert set(used) <= {f"ocm_core/{folder}/__init__.py"}
