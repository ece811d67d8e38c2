"""`ocm compress` and `ocm decompress`: images come back, and nothing but their own file is read."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file

from ocm_core import api, covariance
from ocm_core.cli import main
from ocm_core.covariance.interface import Clip
from ocm_core.errors import OcmError
from ocm_core.uses import coded_file
from ocm_core.uses.codec import ImageCodec
from tests.networks.diffusers_cases import PLAIN, model
from tests.uses.test_codec import smooth

from diffusers import DDPMPipeline, DDPMScheduler  # isort: skip  # after the library

SHAPE, COUNT = (3, 8, 8), 7
WEIGHTS = "unet/diffusion_pytorch_model.safetensors"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a model, heads, images and a file of them."""
    place = tmp_path_factory.mktemp("compress")
    DDPMPipeline(model(PLAIN), DDPMScheduler()).save_pretrained(place / "model")
    denoiser = api.load(place / "model")
    head = denoiser.network.make_head("simple")
    torch.nn.init.normal_(head.conv.weight, std=0.1)
    denoiser.heads["ocm"] = api.CovarianceHead(head)
    api.save_heads(denoiser, place / "heads.safetensors")
    for number, image in enumerate(smooth(SHAPE, COUNT)):
        file = place / "images" / f"part{number % 2}" / f"{number}.webp"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image.transpose(1, 2, 0)).save(file, lossless=True)
    source = ["--model", str(place / "model"), "--head", str(place / "heads.safetensors")]
    asked = [*source, "--method", "ocm", "--steps", "3", "--timesteps", "1,30,1000"]
    assert main(["compress", *asked, str(place / "images"), "--out", str(place / "coded")]) == 0
    return place


@pytest.fixture
def ocm(place: Path, tmp_path: Path, capsys: Any) -> Callable[..., str]:
    """Return a function that runs a command with the model and heads, and returns what it says."""

    def run(command: str, *arguments: object, code: int = 0, model: object = "") -> str:
        source = ["--model", model or place / "model", "--head", place / "heads.safetensors"]
        words = [command, *source, *arguments, "--out", tmp_path / "out"]
        capsys.readouterr()
        assert main([str(word) for word in words]) == code
        said = capsys.readouterr()
        return said.err if code else said.out

    return run


def test_images_come_back_under_their_names(
    ocm: Callable[..., str], place: Path, tmp_path: Path
) -> None:
    said = json.loads(ocm("decompress", place / "coded", "--threads", "2", "--json"))
    assert said == {"folder": str(tmp_path / "out"), "images": COUNT}
    for number, image in enumerate(smooth(SHAPE, COUNT)):
        with Image.open(tmp_path / "out" / f"part{number % 2}" / f"{number}.png") as back:
            assert (np.asarray(back).transpose(2, 0, 1) == image).all()
    header, words = coded_file.read_coded(place / "coded")
    assert header.names[0] == "part0/0.png" and header.first < COUNT and len(words) > 100
    assert "is there already" in ocm("decompress", place / "coded", code=1)


def test_a_flipped_byte_anywhere_and_half_a_file_are_refused(place: Path, tmp_path: Path) -> None:
    content, file = (place / "coded").read_bytes(), tmp_path / "coded"
    for at in range(len(content)):
        damaged = bytearray(content)
        damaged[at] ^= 1 << at % 8
        file.write_bytes(damaged)
        with pytest.raises(OcmError, match=r"expected a file of `ocm compress`, found .*copy it"):
            coded_file.read_coded(file)
    for size in (0, 5, 20, 400, len(content) - 1):
        file.write_bytes(content[:size])
        with pytest.raises(OcmError, match="found something else"):
            coded_file.read_coded(file)


def test_a_changed_weight_or_head_is_another_model(
    ocm: Callable[..., str], place: Path, tmp_path: Path
) -> None:
    changed = tmp_path / "changed"
    shutil.copytree(place / "model", changed)
    weights = load_file(changed / WEIGHTS)
    next(iter(weights.values())).view(-1)[0] += 1e-6
    save_file(weights, changed / WEIGHTS, metadata={"format": "pt"})
    said = ocm("decompress", place / "coded", model=changed, code=1)
    assert "written by another model" in said and not (tmp_path / "out").exists()
    header, _ = coded_file.read_coded(place / "coded")
    denoiser = api.load_heads(api.load(place / "model"), place / "heads.safetensors")
    same = api.codec(denoiser, SHAPE, "ocm", timesteps=(1, 30, 1000))
    assert coded_file.model_digest(same) == header.model
    next(denoiser.heads["ocm"].parameters()).data.view(-1)[0] += 1e-6
    others = [
        api.codec(denoiser, SHAPE, "ocm", timesteps=(1, 30, 1000)),
        replace(same, timesteps=(1, 31, 1000)),
        replace(same, clip=Clip(x0=1.0)),
        replace(same, method=covariance.build("ocm", probes=2)),
    ]
    digests = {header.model, *map(coded_file.model_digest, others)}
    assert len(digests) == 1 + len(others)


def test_another_processor_and_another_result_are_refused(
    ocm: Callable[..., str], place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(coded_file, "kind_of_processor", lambda: "abacus")
        said = ocm("decompress", place / "coded", code=1)
        assert "and this is abacus: networks give other last digits there" in said
    monkeypatch.setattr(ImageCodec, "decode", lambda *_: smooth(SHAPE, COUNT) ^ 1)
    said = ocm("decompress", place / "coded", code=1)
    assert "the images are not those that were written" in said and not (tmp_path / "out").exists()


def test_folders_that_are_not_of_the_models_images_are_refused(
    ocm: Callable[..., str], place: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "images"
    folder.mkdir()
    asked = ("compress", "--method", "ocm", "--steps", "3", folder)
    assert "found no images" in ocm(*asked, code=1)
    Image.new("RGB", (8, 9)).save(folder / "a.png")
    assert "8×9 pixels in RGB; the model takes 8×8" in ocm(*asked, code=1)
    Image.new("L", (8, 8)).save(folder / "a.png")
    assert f"{folder}/a.png: expected an image in RGB" in ocm(*asked, code=1)
    Image.new("RGB", (8, 8)).save(folder / "a.png")
    Image.new("RGB", (8, 8)).save(folder / "a.webp")
    assert "several images become a.png" in ocm(*asked, code=1)


def test_fewer_levels_are_spread_over_eight_bits(tmp_path: Path) -> None:
    levels, names = np.arange(64).reshape(1, 1, 8, 8).astype(np.uint8) % 17, ["a/b.png"]
    coded_file.write_images(tmp_path, names, levels, 17)
    with Image.open(tmp_path / names[0]) as image:
        assert image.mode == "L" and np.asarray(image).max() == 255
    found, pixels = coded_file.read_levels(tmp_path, (1, 8, 8), 17)
    assert found == names and (pixels == levels).all()
    Image.new("L", (8, 8), 3).save(tmp_path / "c.png")
    with pytest.raises(OcmError, match=r"c.png: .*between the 17 levels"):
        coded_file.read_levels(tmp_path, (1, 8, 8), 17)
    for name in ("../x.png", "/x.png"):
        with pytest.raises(OcmError, match="would lie outside"):
            coded_file.write_images(tmp_path, [name], levels, 17)


def test_recipes_that_are_no_codes_are_refused(ocm: Callable[..., str], place: Path) -> None:
    said = "files take steps of DDPM of order 1"
    for words in ("--method delta --sampler ddim", "--preset diverse --method ocm"):
        assert said in ocm("compress", *words.split(), "--steps", "3", place / "images", code=1)
