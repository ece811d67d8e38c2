"""Published autoencoders: got from an address or from a folder, checked, and refused if wrong."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from re import fullmatch

import pytest

from ocm_core.errors import OcmError
from ocm_core.io.checksums import sha256_of
from ocm_core.io.fetch import Lock
from ocm_core.latents.fetching import VAES, PublishedVae, fetch_vae, vae_named
from ocm_core.latents.vae import CONFIG, WEIGHTS, Vae

from .test_vae import configured, drop, poison
from .tiny import CONFIG as EXPECTED
from .tiny import images, saved, tiny

FILES = [CONFIG, WEIGHTS]
SOME = replace(vae_named("sd-vae-ft-ema"), name="some", sha256=dict.fromkeys(FILES))


@pytest.fixture
def published(tmp_path: Path) -> Path:
    saved(tmp_path / "published")
    return tmp_path / "published"


@pytest.fixture
def lock(tmp_path: Path) -> Lock:
    return Lock(tmp_path / "checkpoints.lock.json")


def fetch(root: Path, lock: Lock, url: str | None, vae: PublishedVae = SOME) -> dict[str, object]:
    folder, target = root / "checkpoints" / vae.name, root / "artifact"
    return dict(fetch_vae(vae, folder, lock, target=target, expected=EXPECTED, url=url))


def put_there_by_hand(published: Path, root: Path) -> None:
    (root / "checkpoints").mkdir()
    published.rename(root / "checkpoints" / "some")


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


@pytest.mark.parametrize("way", ["file", "by_hand"])
def test_both_files_are_fetched_checked_and_recorded(
    way: str, tmp_path: Path, published: Path, lock: Lock
) -> None:
    if way == "file":
        provenance = fetch(tmp_path, lock, published.as_uri())
    else:
        put_there_by_hand(published, tmp_path)
        provenance = fetch(tmp_path, lock, None)
    assert names(tmp_path / "checkpoints" / "some") == names(tmp_path / "artifact") == FILES
    found, expected = Vae.load(tmp_path / "artifact"), Vae(tiny().requires_grad_(False))
    assert found.encode(images())[0].equal(expected.encode(images())[0])
    digests = {file: sha256_of(tmp_path / "artifact" / file) for file in FILES}
    assert provenance["sha256"] == digests and provenance["revision"] == SOME.revision
    recorded = {key: entry["sha256"] for key, entry in json.loads(lock.path.read_text()).items()}
    assert recorded == {f"some/{file}": digest for file, digest in digests.items()}
    assert fetch(tmp_path, lock, str(provenance["url"])) == provenance


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda f: (f / WEIGHTS).write_bytes(b"  <!doctype html>"), f"{WEIGHTS}: .* a web page"),
        (lambda f: (f / CONFIG).write_bytes(b"<html>"), f"{CONFIG}: .* found a web page"),
        (lambda f: (f / WEIGHTS).write_bytes(b""), "expected a whole safetensors file"),
        (poison, f"{WEIGHTS}: quant_conv.bias has values that are not finite"),
        (configured(scaling_factor=0.3), "scaling_factor is 0.3, and the experiment expects 0.25"),
    ],
)
def test_a_wrong_download_is_refused_and_nothing_is_left_behind(
    damage: Callable[[Path], object], message: str, tmp_path: Path, published: Path, lock: Lock
) -> None:
    damage(published)
    with pytest.raises(OcmError, match=message):
        fetch(tmp_path, lock, published.as_uri())
    assert names(tmp_path / "checkpoints" / "some") == names(tmp_path / "artifact") == []
    assert not lock.path.exists()


def test_a_wrong_file_that_was_put_there_by_hand_is_refused_and_stays(
    tmp_path: Path, published: Path, lock: Lock
) -> None:
    drop(published)
    put_there_by_hand(published, tmp_path)
    with pytest.raises(OcmError, match=r"missing: encoder.conv_in.bias"):
        fetch(tmp_path, lock, None)
    assert names(tmp_path / "checkpoints" / "some") == FILES
    assert names(tmp_path / "artifact") == []


def test_digests_are_compared(tmp_path: Path, published: Path, lock: Lock) -> None:
    fetch(tmp_path / "first", lock, published.as_uri())
    saved(published, seed=1)
    with pytest.raises(OcmError, match=r"expected sha256 \w+ .* as recorded in"):
        fetch(tmp_path / "second", lock, published.as_uri())
    strict = replace(SOME, sha256={CONFIG: None, WEIGHTS: "0" * 64})
    with pytest.raises(OcmError, match=f"{WEIGHTS}: expected sha256 0+, found"):
        fetch(tmp_path, Lock(tmp_path / "other.json"), published.as_uri(), strict)


@pytest.mark.parametrize("vae", VAES.values(), ids=lambda vae: vae.name)
def test_entries_are_pinned(vae: PublishedVae) -> None:
    assert fullmatch(r"[0-9a-f]{40}", vae.revision)
    assert vae.address.startswith(f"https://huggingface.co/stabilityai/{vae.name}/resolve/")
    assert set(vae.sha256) == set(FILES)
    with pytest.raises(OcmError, match=f"'{vae.name}s' is unknown; did you mean '{vae.name}'"):
        vae_named(f"{vae.name}s")
