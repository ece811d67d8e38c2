"""Make a folder that Snakemake, DVC and `ocm` can work in: a few small files around `params/`."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

from ocm_core.io.atomic import write_text
from ocm_core.project import is_checkout, shipped

SNAKEFILE = '''"""The rules of the installed ocm-core, on the parameters of this folder."""

from ocm_core.project import shipped


include: str(shipped() / "workflow/Snakefile")
'''
ACTIVE = """\
# What a bare `snakemake` and `dvc repro` produce, and whose artifacts DVC versions. Add an
# experiment when its page has been made.
active: []
"""
GITIGNORE = """\
.snakemake/
.snakemake_timestamp

# versioned by DVC
/artifacts/
/reports/*.html

/logs/
/checkpoints/
/datasets/
/samples/
/.ocm/
"""
DVCIGNORE = """\
# Bookkeeping in and beside artifact folders that is no part of the artifact.
.snakemake_timestamp
.*.staging
*.tmp
.locks
.venv
.snakemake
"""
TEXTS = {
    "Snakefile": SNAKEFILE,
    "params/active.yaml": ACTIVE,
    ".gitignore": GITIGNORE,
    ".dvcignore": DVCIGNORE,
}
COPIED = ("profiles/default", "profiles/gpu", "profiles/slurm")


def make_project() -> None:
    """Write what does not exist yet; a checkout has everything."""
    if is_checkout():
        return
    for name, content in TEXTS.items():
        if not Path(name).exists():
            write_text(Path(name), content)
    for name in COPIED:
        if not Path(name).exists():
            shutil.copytree(shipped() / name, name)
    if not Path("dvc.yaml").exists():
        write_text(Path("dvc.yaml"), _dvc_text())
    Path("reports").mkdir(exist_ok=True)


def _dvc_text() -> str:
    """Return the package's dvc.yaml without what only its checkout has: code and results."""
    text = (shipped() / "dvc.yaml").read_text()
    phases = text.partition("\n# What the reports leave in Git")[0]
    return phases.replace("      - ocm_core\n", "")


def keep_out_of_git(paths: Iterable[Path]) -> None:
    """Add images and models that lie inside the project to .gitignore."""
    here, file = Path.cwd().resolve(), Path(".gitignore")
    wanted = [path.expanduser().resolve() for path in paths]
    inside = [f"/{path.relative_to(here).as_posix()}" for path in wanted if here in path.parents]
    content = file.read_text() if file.exists() else ""
    missing = [line for line in inside if line not in content.splitlines()]
    if missing:
        end = "" if content.endswith("\n") or not content else "\n"
        write_text(file, f"{content}{end}" + "".join(f"{line}\n" for line in missing))
