"""The last commit that changed any of a set of files.

It depends on these files and their history only: whatever other commits change, a page that names
it keeps its bytes.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from pathlib import Path

NO_HISTORY = "no git history here"


def last_change(files: Iterable[Path]) -> str:
    names = sorted({file.as_posix() for file in files})
    found = _git("rev-list", "--max-count=1", "--parents", "HEAD", "--", *names)
    if not found:
        return NO_HISTORY
    commit, *parents = found.split()
    shallow = _git("rev-parse", "--is-shallow-repository") == "true"
    if shallow and not parents:  # where the clone begins, every file looks new
        commit += " or an earlier one (this clone is shallow)"
    changed = _git("--no-optional-locks", "status", "--porcelain", "--", *names)
    return f"{commit}, with uncommitted changes" if changed else commit


def _git(*arguments: str) -> str:
    """What git says, or nothing: without git, or outside a repository, pages are made as well."""
    try:
        done = subprocess.run(["git", *arguments], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
