"""A folder that Snakemake, DVC and `ocm` can work in: a few small files around `params/`."""

from __future__ import annotations

import shutil
from pathlib import Path

from ocm_core.io.atomic import write_text
from ocm_core.params.resolved import ACTIVE, active_names
from ocm_core.project import is_checkout, shipped

SNAKEFILE = '''"""The rules of the installed ocm-core, on the parameters of this folder."""

from ocm_core.project import shipped


include: str(shipped() / "Snakefile")
'''
ACTIVE_TEXT = """\
# What a bare `snakemake` and `dvc repro` produce, and whose artifacts DVC versions.
active:
{names}"""
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
.*.working
*.tmp
.locks
.venv
.snakemake
"""
TEXTS = {"Snakefile": SNAKEFILE, ".gitignore": GITIGNORE, ".dvcignore": DVCIGNORE}
COPIED = ("profiles/default", "profiles/gpu", "profiles/slurm", "workflow/stage", "workflow/in_env")


def make_project() -> list[Path]:
    """Write what is not there yet; what is there stays as it is. A checkout has everything."""
    if is_checkout():
        return []
    written = [Path(name) for name in (*TEXTS, *COPIED) if not Path(name).exists()]
    for path in written:
        source = shipped() / path
        if path.name in TEXTS:
            write_text(path, TEXTS[path.name])
        elif source.is_dir():
            shutil.copytree(source, path)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, path)
    Path("reports").mkdir(exist_ok=True)
    return written


def activate(name: str) -> None:
    """List an experiment among those that are made by default, in a project of one's own."""
    if is_checkout():
        return
    names = active_names() if ACTIVE.exists() else []
    if name not in names:
        listed = "".join(f"  - {each}\n" for each in [*names, name])
        write_text(ACTIVE, ACTIVE_TEXT.format(names=listed))
