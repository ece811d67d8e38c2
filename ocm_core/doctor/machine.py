"""Describe this computer: packages against the pinned versions, devices, memory, disk."""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import distributions
from pathlib import Path

from ocm_core.errors import OcmError
from ocm_core.project import is_checkout

PINS = Path("requirements.txt")
MODEL = "diffusers.models.unets.unet_2d"  # what importing a model of diffusers takes


@dataclass(frozen=True)
class PinnedPackage:
    """A line of requirements.txt, and the version that is installed."""

    name: str
    pinned: str
    installed: str | None

    @property
    def differs(self) -> bool:
        """Whether another version is installed; a build such as +cpu is the same version."""
        return self.installed is None or self.installed.partition("+")[0] != self.pinned

    def __str__(self) -> str:
        return f"{self.name} {self.installed or 'is missing'}, pinned {self.pinned}"


@dataclass(frozen=True)
class Machine:
    """The versions and the devices of this computer."""

    python: str
    system: str
    torch: str
    cuda: str | None  # the version that torch was built for
    cores: int
    memory: int
    free_disk: int
    gpus: dict[str, int | None]  # name and bytes of memory; None: shared with the system


def machine() -> Machine:
    """Describe this computer."""
    import torch

    return Machine(
        python=platform.python_version(),
        system=f"{platform.system()} {platform.machine()}",
        torch=torch.__version__,
        cuda=torch.version.cuda,
        cores=os.cpu_count() or 1,
        memory=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        free_disk=shutil.disk_usage(Path.cwd()).free,
        gpus=_gpus(),
    )


def packages(pins: Path = PINS) -> list[PinnedPackage]:
    """Compare with the pinned versions; a project outside a checkout may have none."""
    if not pins.exists() and not is_checkout():
        return []
    return [PinnedPackage(name, pinned, _installed(name)) for name, pinned in _pins(pins)]


def diffusers_problem() -> str | None:
    """Return why models of diffusers cannot be imported, and what to do; None if they can."""
    try:
        import_module(MODEL)
    except (ImportError, RuntimeError) as error:
        reason = str(error).strip().splitlines()[-1]
        return (
            f"diffusers cannot be imported ({reason}); a torchvision of another build than torch "
            "does this: run `pip uninstall torchvision`, which nothing here needs, or make the "
            "environment again (`rm -r .venv && make env`)"
        )
    return None


def _pins(file: Path) -> Iterator[tuple[str, str]]:
    if not file.exists():
        raise OcmError(f"{file}: not there; restore it from Git, or `make pins` makes it")
    for line in file.read_text().splitlines():
        if line.startswith(("#", " ", "-")):  # notes, hashes on lines of their own, options
            continue
        name, sign, pinned = line.partition("==")
        if not sign:
            raise OcmError(f"{file}: expected name==version, found {line!r}; run `make pins`")
        yield name, pinned.split()[0]


def _installed(name: str) -> str | None:
    return next((package.version for package in distributions(name=name)), None)


def _gpus() -> dict[str, int | None]:
    import torch

    indices = range(torch.cuda.device_count())
    properties = {index: torch.cuda.get_device_properties(index) for index in indices}
    gpus: dict[str, int | None] = {
        f"cuda:{i} {p.name}": p.total_memory for i, p in properties.items()
    }
    return gpus | ({"mps": None} if torch.backends.mps.is_available() else {})
