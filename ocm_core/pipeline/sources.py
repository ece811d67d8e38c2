"""Which files a task's code is made of: the static closure of its imports inside `ocm_core`.

Each rule of Snakemake carries a digest of these files. The plumbing does not count: values reach a
stage through its declared parameters. Nor does what a stage file declares, or does for its own
artifact alone, where another one imports it.
"""

from __future__ import annotations

import ast
import hashlib
import re
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path

from ocm_core.errors import OcmError
from ocm_core.project import located

PACKAGE = "ocm_core"
PLUMBING = re.compile(rf"{PACKAGE}\.(cli|commands|params|pipeline|schema)\b")
STAGES = f"{PACKAGE}.stages."
Import = tuple[str, str]  # a module, and what of a stage file is imported; "": all of it


def sources(modules: Iterable[str]) -> list[Path]:
    """Return the files of modules and of everything they import, templates included, sorted."""
    files = {file for module in closure(modules) if (file := _file(module))}
    folders = {file.parent / "templates" for file in files}
    return sorted(files | {place / f.name for place in folders for f in located(place).glob("*")})


def digest(files: Iterable[Path]) -> str:
    """Return a digest of names and contents of files."""
    lines = (f"{file.as_posix()} {_sha256(file)}\n" for file in files)
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def closure(modules: Iterable[str], *, whole: bool = False) -> set[str]:
    """Return the modules and everything that their code imports.

    Of a stage file that is what `run` uses, or who imports something of it; or the whole file.
    """
    pending = [(m, "run" if re.match(rf"{STAGES}[^_]", m) else "") for m in modules]
    reached: set[Import] = set()
    while pending:
        module, name = pending.pop()
        found = (module, "" if whole else name)
        if found not in reached and counts(module):
            reached.add(found)
            pending.extend(_imports(*found))
    return {module for module, _ in reached}


def counts(module: str) -> bool:
    """Return whether a module is no plumbing."""
    return not PLUMBING.match(module)


def loaded() -> set[str]:
    """Return the modules of this package that the running process has imported."""
    return {name for name in sys.modules if name.split(".")[0] == PACKAGE and counts(name)}


def check_loaded(before: Collection[str], declared: Iterable[str], stage: str) -> None:
    """Refuse a result that depends on a plug-in that was imported by name, undeclared."""
    if surplus := loaded().difference(before, closure(declared, whole=True)):
        raise OcmError(
            f"stage {stage!r} has loaded {', '.join(sorted(surplus))} without declaring it: import "
            f"it in ocm_core/stages/{stage}.py, or name it among the stage's `plugins`"
        )


@cache
def _sha256(file: Path) -> str:
    return hashlib.sha256(located(file).read_bytes()).hexdigest()


@cache
def _file(module: str) -> Path | None:
    """Return the file of a module of this package, as it is called in a checkout."""
    base = Path(*module.split("."))
    files = (base.with_suffix(".py"), base / "__init__.py") if base.parts[0] == PACKAGE else ()
    return next((file for file in files if located(file).exists()), None)


@cache
def _imports(module: str, name: str) -> frozenset[Import]:
    """Return what the code of a module imports, and the packages that importing it runs.

    Of a stage file only what `name` uses counts: neither `STAGE`, nor imports for the rest.
    """
    if not (file := _file(module)):
        absent = f"{module.replace('.', '/')}.py"
        raise OcmError(f"{absent}: no such module, but a stage or a parameter names it")
    tree = ast.parse(located(file).read_text(), filename=str(file))
    statements = _used(tree.body, name) if name else tree.body
    nodes = [node for statement in statements for node in _running(statement)]
    mentioned = {node.id for node in nodes if isinstance(node, ast.Name)} if name else None
    inside = {found for node in nodes for found in _names(node, file, mentioned)}
    paths = [m.split(".") for m in {module, *(found for found, _ in inside)}]
    packages = {(".".join(path[:depth]), "") for path in paths for depth in range(1, len(path))}
    return frozenset(inside | packages)


def _used(body: Sequence[ast.stmt], name: str) -> list[ast.stmt]:
    """Return a stage file's imports, and the definitions that `name` needs."""
    definitions = {defined: node for node in body for defined in _defines(node)}
    used = [node for node in body if not _defines(node)]
    definitions.pop("STAGE", None)
    names = {name}
    while called := [definitions.pop(other) for other in names & definitions.keys()]:
        used += called
        names = {n.id for node in called for n in ast.walk(node) if isinstance(n, ast.Name)}
    return used


def _defines(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", node)]
    return [target.id for target in targets if isinstance(target, ast.Name)]


def _running(node: ast.AST) -> Iterator[ast.AST]:
    """Yield a node and those inside it, but for what only type checkers read."""
    if not isinstance(node, ast.If) or ast.unparse(node.test) != "TYPE_CHECKING":
        yield node
        for child in ast.iter_child_nodes(node):
            yield from _running(child)


def _names(node: ast.AST, file: Path, mentioned: Collection[str] | None) -> Iterator[Import]:
    if isinstance(node, ast.Import):
        yield from ((alias.name, "") for alias in node.names if _file(alias.name))
    elif isinstance(node, ast.ImportFrom):
        if node.level or not node.module:
            raise OcmError(f"{file}:{node.lineno}: a relative import; write the full name")
        for alias in node.names if _file(node.module) else ():
            if mentioned is None or (alias.asname or alias.name) in mentioned:
                inner = f"{node.module}.{alias.name}"
                part = alias.name if node.module.startswith(STAGES) else ""
                yield (inner, "") if _file(inner) else (node.module, part)
