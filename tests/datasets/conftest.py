from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import pytest

from ocm_core.io.archives import Archive

ARCHIVED = ("cifar10", "celeba64", "imagenet64", "imagenet256", "lsun_bedroom", "mnist")


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "*")


@pytest.fixture
def archives(tmp_path: Path) -> Path:
    return tmp_path / "datasets"


def undigested(archive: Archive) -> Archive:
    instead = archive.instead and undigested(archive.instead)
    return replace(archive, bytes=None, sha256=None, md5=None, instead=instead)


@contextmanager
def without_published_digests() -> Iterator[None]:
    """Tiny archives cannot have the digests of the real ones; every other check stays."""
    with pytest.MonkeyPatch.context() as patch:
        for kind in ARCHIVED:
            module = import_module(f"ocm_core.datasets.{kind}")
            tiny = {name: undigested(archive) for name, archive in module.ARCHIVES.items()}
            patch.setattr(module, "ARCHIVES", tiny)
        yield


@pytest.fixture
def unpublished() -> Iterator[None]:
    with without_published_digests():
        yield
