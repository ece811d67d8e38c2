"""Resolved files as they were composed here before: the same files and code give the same text.

To compose all experiments takes ten seconds and more. Each text has the digests of the files that
it was made from at its head, and lies in a folder that is named after the code that made it.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path

import ocm_core
from ocm_core.io.atomic import alone_in, write_text
from ocm_core.params.resolved import resolved_text
from ocm_core.params.stamps import digests, edited
from ocm_core.pipeline.manifests import text_digest
from ocm_core.pipeline.sources import digest

REMEMBERED = Path(".ocm/composed")
_DECIDING = ("hydra-core", "omegaconf", "pydantic", "torch", "diffusers")


def composed(names: Iterable[str]) -> dict[str, str]:
    """The text of each experiment's resolved file."""
    folder = REMEMBERED / _code()
    return {name: _composed(folder / f"{name}.yaml", name) for name in names}


def _composed(file: Path, name: str) -> str:
    if not edited(file):
        return file.read_text()
    from ocm_core.params.compose import compose, origins  # takes Hydra and torch

    stamps = digests(origins(name))
    text = resolved_text(compose(name), stamps)
    with suppress(OSError):  # a checkout that nobody may write to is composed each time
        _remember(file, text)
    return text


def _remember(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with alone_in(REMEMBERED):
        for other in set(REMEMBERED.iterdir()) - {file.parent}:
            shutil.rmtree(other)
        write_text(file, text)


@cache
def _code() -> str:
    files = sorted(Path(ocm_core.__file__).parent.rglob("*.py"))
    return text_digest([digest(files), *map(version, _DECIDING)])[:16]
