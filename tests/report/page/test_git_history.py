"""The commit on a page is that of its inputs: unrelated commits leave it alone."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from ocm_core.report.page.git_history import NO_HISTORY, last_change

FILES = [Path("code/a.py"), Path("params.yaml")]


class Repository:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.git("init", "--quiet", "--initial-branch=main")

    def git(self, *arguments: str) -> str:
        who = ("-c", "user.name=Test", "-c", "user.email=test@example.org")
        done = subprocess.run(
            ["git", *who, *arguments], cwd=self.root, check=True, capture_output=True, text=True
        )
        return done.stdout.strip()

    def commit(self, **files: str) -> str:
        for name, text in files.items():
            path = self.root / name.replace("__", "/").replace("_dot_", ".")
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", "a change")
        return self.git("rev-parse", "HEAD")


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repository:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    made = Repository(tmp_path)
    monkeypatch.chdir(tmp_path)
    return made


def test_the_last_commit_that_changed_a_file_is_named(repository: Repository) -> None:
    first = repository.commit(code__a_dot_py="1", params_dot_yaml="x", other="y")
    assert last_change(FILES) == first
    second = repository.commit(params_dot_yaml="z")
    repository.commit(other="more")
    assert last_change(FILES) == second
    assert last_change(FILES[:1]) == first


def test_changes_that_were_not_committed_are_told(repository: Repository) -> None:
    commit = repository.commit(code__a_dot_py="1", params_dot_yaml="x")
    (repository.root / "notes").write_text("unrelated")
    assert last_change(FILES) == commit
    (repository.root / "params.yaml").write_text("y")
    assert last_change(FILES) == f"{commit}, with uncommitted changes"
    repository.git("checkout", "--quiet", "params.yaml")
    (repository.root / "code/b.py").write_text("new")
    assert last_change([*FILES, Path("code/b.py")]) == f"{commit}, with uncommitted changes"


def test_a_shallow_clone_says_what_it_cannot_know(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository.commit(code__a_dot_py="1", params_dot_yaml="x")
    newest = repository.commit(other="y")
    clone = tmp_path / "clone"
    repository.git("clone", "--quiet", "--depth", "1", f"file://{tmp_path}", str(clone))
    monkeypatch.chdir(clone)
    assert last_change(FILES) == f"{newest} or an earlier one (this clone is shallow)"


def test_without_history_there_is_none(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert last_change(FILES) == NO_HISTORY  # no commit yet
    repository.commit(other="y")
    assert last_change(FILES) == NO_HISTORY  # none of them
    monkeypatch.setenv("PATH", "")
    assert last_change(FILES) == NO_HISTORY  # no git


def test_a_folder_that_is_no_repository_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    monkeypatch.chdir(tmp_path)
    assert last_change(FILES) == NO_HISTORY
