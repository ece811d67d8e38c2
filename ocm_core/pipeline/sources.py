"""Which files a stage is made of: the static closure of its imports inside `ocm_core`.

DVC lists these files as `deps`; Snakemake sees one digest of them in the rule's `params`. The
plumbing itself does not count: values reach a stage through its declared parameters, and a stage
must not become stale because a new experiment needed a new key.
"""

from __future__ import annotations

import ast
import hashlib
import sys
from collections.abc import Collection, Iterable, Iterator
from functools import cache
from pathlib import Path

from ocm_core.errors import OcmError
from ocm_core.project import located

PACKAGE = "ocm_core"
PLUMBING = ("ocm_core.cli", "ocm_core.params", "ocm_core.pipeline", "ocm_core.schema")


def sources(modules: Iterable[str]) -> list[Path]:
    """The files of the given modules and of everything they import, templates included, sorted."""
    files = {_file(module) for module in closure(modules)}
    return sorted(files.union(*(_templates(file.parent) for file in files)))


def digest(files: Iterable[Path]) -> str:
    lines = (f"{file.as_posix()} {_sha256(file)}\n" for file in files)
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def closure(modules: Iterable[str]) -> set[str]:
    found: set[str] = set()
    pending = list(modules)
    while pending:
        module = pending.pop()
        if module not in found and counts(module):
            found.add(module)
            pending.extend(_imports(module))
    return found


def counts(module: str) -> bool:
    return not any(module == name or module.startswith(f"{name}.") for name in PLUMBING)


def loaded() -> set[str]:
    """The modules of this package that the running process has imported."""
    return {name for name in sys.modules if name.split(".")[0] == PACKAGE and counts(name)}


def check_loaded(before: Collection[str], declared: Iterable[str], stage: str) -> None:
    """Refuse a result that depends on a file that neither tool knows of."""
    surplus = loaded().difference(before, closure(declared))
    if surplus:
        raise OcmError(
            f"stage {stage!r} has loaded {', '.join(sorted(surplus))} without declaring it: import "
            f"it in ocm_core/stages/{stage}.py, or let ocm_core/pipeline/table.py declare it"
        )


@cache
def _sha256(file: Path) -> str:
    return hashlib.sha256(located(file).read_bytes()).hexdigest()


def _templates(folder: Path) -> set[Path]:
    return {folder / "templates" / file.name for file in located(folder).glob("templates/*")}


@cache
def _file(module: str) -> Path:
    """As it is called in a checkout."""
    base = Path(*module.split("."))
    for file in (base.with_suffix(".py"), base / "__init__.py"):
        if located(file).exists():
            return file
    raise OcmError(f"{base}.py: no such module, but a stage or a parameter names it")


@cache
def _imports(module: str) -> frozenset[str]:
    """What importing `module` imports: its packages, and its own import statements."""
    tree = ast.parse(located(_file(module)).read_text(), filename=str(_file(module)))
    imported = {name for node in ast.walk(tree) for name in _names(node, module)}
    inside = {name for name in imported if name.split(".")[0] == PACKAGE}
    packages = {parent for name in {module, *inside} for parent in _parents(name)}
    return frozenset(inside | packages)


def _names(node: ast.AST, module: str) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        if node.level or not node.module:
            raise OcmError(f"{_file(module)}:{node.lineno}: a relative import; write the full name")
        yield node.module
        names = (f"{node.module}.{alias.name}" for alias in node.names)
        yield from (name for name in names if _is_module(name))


def _is_module(name: str) -> bool:
    base = Path(*name.split("."))
    if name.split(".")[0] != PACKAGE:
        return False
    return located(base.with_suffix(".py")).exists() or located(base).is_dir()


def _parents(module: str) -> Iterator[str]:
    names = module.split(".")
    return (".".join(names[:depth]) for depth in range(1, len(names)))
