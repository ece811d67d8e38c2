"""This computer: packages against the pinned versions, devices, memory, disk."""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from ocm_core.errors import OcmError
from ocm_core.project import is_checkout

PINS = Path("requirements.txt")


@dataclass(frozen=True)
class PinnedPackage:
    """A line of requirements.txt, and what is installed."""

    name: str
    pinned: str
    installed: str | None

    @property
    def differs(self) -> bool:
        """From the pinned version; a build of it such as +cpu does not."""
        return self.installed is None or self.installed.partition("+")[0] != self.pinned

    def __str__(self) -> str:
        return f"{self.name} {self.installed or 'is missing'}, pinned {self.pinned}"


@dataclass(frozen=True)
class Accelerator:
    """A GPU."""

    name: str
    memory: int | None  # bytes; None: shared with the system


@dataclass(frozen=True)
class Machine:
    python: str
    system: str
    torch: str
    cuda: str | None  # the version that torch was built for
    cores: int
    memory: int
    free_disk: int
    devices: tuple[Accelerator, ...]  # other than the CPU


def packages(pins: Path = PINS) -> list[PinnedPackage]:
    """Against the pinned versions; a project outside a checkout may have none."""
    if not pins.exists() and not is_checkout():
        return []
    return [PinnedPackage(name, pinned, _installed(name)) for name, pinned in _pins(pins)]


def machine() -> Machine:
    import torch

    return Machine(
        python=platform.python_version(),
        system=f"{platform.system()} {platform.machine()}",
        torch=torch.__version__,
        cuda=torch.version.cuda,
        cores=os.cpu_count() or 1,
        memory=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        free_disk=shutil.disk_usage(Path.cwd()).free,
        devices=tuple(_devices()),
    )


def _pins(file: Path) -> Iterator[tuple[str, str]]:
    if not file.exists():
        raise OcmError(f"{file}: not there; restore it from Git, or `make pins` makes it")
    for line in file.read_text().splitlines():
        if line.startswith(("#", " ")):  # notes, and the hashes of the line before
            continue
        name, sign, pinned = line.removesuffix("\\").strip().partition("==")
        if not sign:
            raise OcmError(f"{file}: expected name==version, found {line!r}; run `make pins`")
        yield name, pinned


def _installed(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _devices() -> Iterator[Accelerator]:
    import torch

    for index in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(index)
        yield Accelerator(f"cuda:{index} {properties.name}", properties.total_memory)
    if torch.backends.mps.is_available():
        yield Accelerator("mps", None)
