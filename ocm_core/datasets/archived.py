"""Data sets that have to be fetched first."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import ClassVar

from ocm_core.datasets.base import DataParams
from ocm_core.io.archives import Archive, Located, locate


class ArchivedData(DataParams):
    """A data set in published archives."""

    archived: ClassVar[bool] = True

    def needed_archives(self) -> dict[str, Archive]:
        """Return the published files that `open` reads, by name."""
        raise NotImplementedError

    def locate(self, archives: Path) -> dict[str, Located]:
        """Return the checked files of `needed_archives`; download those that can be."""
        return {name: locate(file, archives) for name, file in self.needed_archives().items()}


def file_checksums(located: Iterable[Located]) -> dict[str, str]:
    """Return the sha256 of archives by file name, for the provenance."""
    return {file.path.name: file.sha256 for file in located}
