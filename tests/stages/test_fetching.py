"""What is fetched for the first time: damage is found, refused downloads go, trust is said."""

import logging
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from zipfile import ZipFile

import pytest
import torch

from ocm_core.checkpoints import registry
from ocm_core.errors import OcmError
from ocm_core.features import inception
from ocm_core.io.fetch import LOCK_FILE
from ocm_core.latents.fetching import vae_named
from ocm_core.latents.vae import CONFIG, WEIGHTS
from ocm_core.stages import fetch_features, fetch_score, fetch_vae
from tests.checkpoints.files import tiny, weights, write
from tests.latents.tiny import CONFIG as TINY_VAE
from tests.latents.tiny import saved
from tests.metrics.tiny_inception import TinyInception

FILE = inception.FOLDER / inception.FILE
TRUSTED = "taken on trust: its authors publish no digest"


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "artifact").mkdir()
    return tmp_path


def job(**experiment: Any) -> Any:
    return SimpleNamespace(
        experiment=SimpleNamespace(**experiment),
        folder=Path("artifact").resolve(),
        log=logging.getLogger("ocm"),
        note=lambda **values: None,
    )


@pytest.fixture
def elsewhere(place: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Inception's file where the stage downloads it from."""
    of_inception(place, monkeypatch)
    return place / "elsewhere.pt"


def flip_a_weight(file: Path) -> None:
    with ZipFile(file) as opened:
        largest = max(opened.infolist(), key=lambda member: member.file_size)
    content = bytearray(file.read_bytes())
    content[largest.header_offset + largest.file_size // 2] ^= 1
    file.write_bytes(content)


def test_a_refused_download_of_inception_is_neither_kept_nor_recorded(elsewhere: Path) -> None:
    whole = elsewhere.read_bytes()
    flip_a_weight(elsewhere)
    with pytest.raises(OcmError, match="the CRC of"):
        fetch_features.run(job())
    assert not FILE.exists() and not LOCK_FILE.exists()
    elsewhere.write_bytes(whole)
    fetch_features.run(job())
    assert FILE.read_bytes() == Path("artifact", inception.FILE).read_bytes() == whole


def of_inception(place: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Any, list[Path]]:
    file = place / "elsewhere.pt"
    torch.jit.script(TinyInception()).save(file)
    monkeypatch.setattr(inception, "SOURCE", replace(inception.SOURCE, url=file.as_uri()))
    return fetch_features, job(), [FILE]


def of_a_checkpoint(place: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Any, list[Path]]:
    entry = tiny("cifar10_cs")
    source = write(entry.source(), weights(entry), place / "elsewhere.pth")
    choice = SimpleNamespace(name=entry.name, origin="published", file=None, url=source.as_uri())
    params = SimpleNamespace(checkpoint=choice, family=entry.family, config=entry.config)
    monkeypatch.setattr(fetch_score, "checkpoint_named", lambda name: entry)
    return fetch_score, job(network=params), [registry.FOLDER / entry.name / entry.source().file]


def of_an_autoencoder(place: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Any, list[Path]]:
    entry = vae_named("sd-vae-ft-ema")
    saved(place / "elsewhere")
    url = (place / "elsewhere").as_uri()
    choice = SimpleNamespace(origin="published", name=entry.name, config=TINY_VAE, url=url)
    encode = SimpleNamespace(latent=SimpleNamespace(vae=choice))
    files = [registry.FOLDER / entry.name / name for name in (CONFIG, WEIGHTS)]
    return fetch_vae, job(encode=encode), files


@pytest.mark.parametrize("prepare", [of_inception, of_a_checkpoint, of_an_autoencoder])
def test_a_file_is_taken_on_trust_once(
    prepare: Any, place: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    stage, wanted, files = prepare(place, monkeypatch)
    stage.run(wanted)
    said = [line.partition(": ")[0] for line in caplog.messages if TRUSTED in line]
    assert sorted(said) == [str(file) for file in files]
    caplog.clear()
    stage.run(wanted)
    assert not caplog.messages
