"""The closure of a stage's sources: complete, minimal, and checked while the stage runs."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from ocm_core.errors import OcmError
from ocm_core.params.resolved import load
from ocm_core.pipeline import sources, table


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package of the same name in an empty folder."""
    files = {
        "__init__.py": "",
        "alpha.py": "import os\nfrom ocm_core.inner import beta\n",
        "inner/__init__.py": "from ocm_core import gamma\n",
        "inner/beta.py": "def late():\n    import ocm_core.delta\n",
        "gamma.py": "from ocm_core.schema.experiment import Experiment\n",
        "delta.py": "",
        "unused.py": "",
        "relative.py": "from . import alpha\n",
    }
    for name, text in files.items():
        file = tmp_path / "ocm_core" / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
    monkeypatch.chdir(tmp_path)
    for cached in (sources._file, sources._imports, sources._sha256):
        cached.cache_clear()
    yield tmp_path / "ocm_core"
    for cached in (sources._file, sources._imports, sources._sha256):
        cached.cache_clear()


def test_closure_follows_packages_late_imports_and_nothing_else(package: Path) -> None:
    found = {file.as_posix() for file in sources.sources(["ocm_core.alpha"])}
    names = ("__init__", "alpha", "delta", "gamma", "inner/__init__", "inner/beta")
    assert found == {f"ocm_core/{name}.py" for name in names}


def test_digest_changes_with_the_content_and_with_the_name(package: Path) -> None:
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


def test_undeclared_module_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    before = sources.loaded()
    monkeypatch.setitem(sys.modules, "ocm_core.smuggled", sys)
    with pytest.raises(OcmError, match=r"stage 'encode' has loaded ocm_core\.smuggled"):
        sources.check_loaded(before, ["ocm_core.stages.encode"], "encode")
    sources.check_loaded([*before, "ocm_core.smuggled"], ["ocm_core.stages.encode"], "encode")


def test_methods_that_are_not_used_are_no_sources() -> None:
    experiment = load("toy_mog9")
    modules = table.modules(experiment, table.Task("heads", "learned"))
    names = {file.stem for file in sources.sources(modules)}
    assert {"ocm", "mlp", "heads"} <= names
    assert not {"rademacher", "exact_full", "dit", "report", "table", "schema"} & names
