"""Where files lie: those of the project in this folder, and those that come with the package.

A project is a folder with `params/`. A checkout of this repository is one, and has everything; any
other one takes rules, default parameters and code from the installed package.
"""

from __future__ import annotations

from pathlib import Path

PACKAGE = Path(__file__).resolve().parent
_MARK = Path("ocm_core/__init__.py")


def is_checkout() -> bool:
    """Whether this folder is a checkout of the repository, which has code of its own."""
    return _MARK.is_file()


def shipped() -> Path:
    """What has Snakefile, workflow/, profiles/, params/: part of a wheel, or the checkout."""
    installed = PACKAGE / "shipped"
    return installed if installed.is_dir() else PACKAGE.parent


def located(file: Path) -> Path:
    """A file of the project; where it has none of that name, the one of the package."""
    if file.exists() or is_checkout():
        return file
    return (PACKAGE.parent if file.parts[:1] == (PACKAGE.name,) else shipped()) / file
