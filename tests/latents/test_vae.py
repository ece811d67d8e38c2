"""The adapter computes what diffusers computes, and refuses what diffusers would let pass."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from ocm_core.errors import OcmError
from ocm_core.latents import vae as module
from ocm_core.latents.vae import WEIGHTS, AutoencoderKL, LatentEncoding, Vae, save_folder
from ocm_core.store.reader import open_split
from ocm_core.store.writer import StoreLayout, write
from tests.init.folders import deep_autoencoder

from .tiny import CONFIG, images, saved, tiny


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"in_channels": 1, "out_channels": 1, "block_out_channels": [4, 4]},
        {"shift_factor": 0.1, "use_quant_conv": False, "use_post_quant_conv": False},
        {"latent_channels": 2, "mid_block_add_attention": False, "layers_per_block": 2},
    ],
)
@torch.no_grad()
def test_encoding_and_decoding_equal_diffusers_own(tmp_path: Path, changes: dict[str, Any]) -> None:
    saved(tmp_path, **changes)
    vae, reference = Vae.load(tmp_path), AutoencoderKL.from_pretrained(tmp_path)
    reference.requires_grad_(False)  # torch multiplies by frozen matrices in another order
    scale, shift = reference.config.scaling_factor, reference.config.shift_factor or 0.0
    x = images(channels=changes.get("in_channels", 3))
    mean, std = vae.encode(x)
    posterior = reference.encode(x).latent_dist
    assert torch.equal(mean, (posterior.mean - shift) * scale)
    assert torch.equal(std, posterior.std * scale)
    assert torch.equal(vae.decode(mean), reference.decode(mean / scale + shift).sample)
    assert mean.shape == (2, vae.channels, 16 // vae.downsampling, 16 // vae.downsampling)
    assert vae.scaling_factor == 0.25 and not vae.model.training
    assert not any(parameter.requires_grad for parameter in vae.model.parameters())


@torch.no_grad()
def test_a_deep_autoencoder_has_no_posterior(tmp_path: Path) -> None:
    torch.manual_seed(0)
    reference, x = deep_autoencoder().eval().requires_grad_(False), images()
    reference.save_pretrained(tmp_path / "theirs")
    save_folder(Vae.load(tmp_path / "theirs").model, tmp_path / "ours", 0.4)
    vae = Vae.load(tmp_path / "ours")
    mean, std = vae.encode(x)
    assert torch.equal(mean, reference.encode(x).latent * 0.4) and not std.any()
    assert torch.equal(vae.decode(mean), reference.decode(mean / 0.4).sample)
    assert (vae.downsampling, vae.channels, vae.shift_factor) == (2, 4, 0.0)
    file = tmp_path / "ours/config.json"
    channels = {"encoder_block_out_channels": [0, 8]}
    file.write_text(json.dumps(json.loads(file.read_text()) | channels))
    with pytest.raises(OcmError, match=r"encoder_block_out_channels\.0: Input should be greater"):
        Vae.load(tmp_path / "ours")


def test_what_is_saved_has_the_same_bytes_for_diffusers_and_for_us(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        save_folder(tiny(3), tmp_path / folder, scaling_factor=0.7)
    for file in (module.CONFIG, WEIGHTS):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()
    theirs, ours = AutoencoderKL.from_pretrained(tmp_path / "a"), Vae.load(tmp_path / "a")
    assert theirs.config.scaling_factor == ours.scaling_factor == 0.7
    for key, tensor in tiny(3).state_dict().items():
        assert torch.equal(theirs.state_dict()[key], tensor)
        assert torch.equal(ours.model.state_dict()[key], tensor)


def test_the_names_of_the_first_published_files_are_understood(tmp_path: Path) -> None:
    model, renamed = saved(tmp_path), load_file(tmp_path / WEIGHTS)
    former = {"to_q": "query", "to_k": "key", "to_v": "value", "to_out.0": "proj_attn"}
    for new, old in former.items():
        places = f"attentions.0.{new}.", f"attentions.0.{old}."
        renamed = {key.replace(*places): tensor for key, tensor in renamed.items()}
    assert len(set(renamed) - set(model.state_dict())) == 16
    save_file(renamed, tmp_path / WEIGHTS)
    found, expected = Vae.load(tmp_path), Vae(model.requires_grad_(False))
    assert torch.equal(found.encode(images())[0], expected.encode(images())[0])


def edited(change: Callable[[dict[str, torch.Tensor]], object]) -> Callable[[Path], None]:
    def change_file(folder: Path) -> None:
        tensors = load_file(folder / WEIGHTS)
        change(tensors)
        save_file(tensors, folder / WEIGHTS)

    return change_file


BIAS = "quant_conv.bias"
drop = edited(lambda tensors: tensors.pop("encoder.conv_in.bias"))
reshape = edited(lambda tensors: tensors.update({BIAS: tensors[BIAS][:3].clone()}))
poison = edited(lambda tensors: tensors[BIAS][1].fill_(torch.nan))


def configured(**changes: Any) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        config = json.loads((folder / module.CONFIG).read_text())
        (folder / module.CONFIG).write_text(json.dumps({**config, **changes}))

    return change


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (drop, f"{WEIGHTS}.*missing: encoder.conv_in.bias"),
        (reshape, f"{WEIGHTS}.*misshapen: quant_conv.bias .3,. instead of .8,."),
        (
            lambda folder: os.truncate(folder / WEIGHTS, 1000),
            f"{WEIGHTS}: expected a whole safetensors file",
        ),
        (lambda folder: (folder / WEIGHTS).unlink(), rf"{WEIGHTS}: no such file; .* pickle \(.bin"),
        (lambda folder: (folder / module.CONFIG).unlink(), f"{module.CONFIG}: no such file"),
        (lambda folder: (folder / module.CONFIG).write_text("<html>"), "expected a JSON object"),
        (lambda folder: (folder / module.CONFIG).write_text("[]"), "expected a JSON object"),
        (configured(latent_chanels=4), "latent_chanels' is unknown; did you mean 'latent_channels"),
        (configured(latents_mean=[0.0] * 4), "latents_mean is set"),
        (configured(_class_name="VQModel"), "describes a VQModel; expected an AutoencoderKL"),
        (configured(down_block_types=["DownEncoderBlock2D"]), "down_block_types has not as many"),
        (configured(norm_num_groups=3), "expected a configuration of AutoencoderKL"),
        (configured(latent_channels=5), "misshapen"),
    ],
)
def test_a_folder_that_is_not_whole_is_refused(
    tmp_path: Path, damage: Callable[[Path], object], message: str
) -> None:
    saved(tmp_path)
    damage(tmp_path)
    with pytest.raises(OcmError, match=message) as raised:
        Vae.load(tmp_path)
    assert str(tmp_path) in str(raised.value)


def test_block_types_follow_from_the_levels_and_images_that_do_not_fit_are_refused() -> None:
    vae = Vae(module.new_autoencoder(CONFIG, "a test"))
    assert len(vae.model.encoder.down_blocks) == len(vae.model.decoder.up_blocks) == 3
    for bad in (images(channels=1), images(side=18), images()[0]):
        with pytest.raises(OcmError, match=r"expected \(n, 3, h, w\) with h and w divisible by 4"):
            vae.encode(bad)
    with pytest.raises(OcmError, match=r"expected \(n, 4, h, w\)"):
        vae.decode(images())


PIXELS = np.random.default_rng(0).integers(0, 256, (11, 3, 16, 16), dtype=np.uint8)
MEAN, STD = (
    part.numpy() for part in Vae(tiny()).encode(torch.from_numpy(PIXELS / 127.5 - 1).float())
)


def encoding(posterior: Any, seed: int = 9) -> LatentEncoding:
    return LatentEncoding(Vae(tiny()), 256, posterior, seed, 4, {"source": "a test"})


def test_a_draw_belongs_to_its_item_and_seed() -> None:
    whole = encoding("sample")(PIXELS, range(20, 31))["x"]
    noise = (whole - MEAN) / STD
    assert abs(noise.mean()) < 0.1 and abs(noise.std() - 1) < 0.1
    part = encoding("sample")(PIXELS[4:8], range(24, 28))["x"]
    np.testing.assert_array_equal(part, whole[4:8])
    assert not np.allclose(encoding("sample", seed=10)(PIXELS, range(20, 31))["x"], whole)
    assert not np.allclose(encoding("sample")(PIXELS, range(11))["x"], whole)


@pytest.mark.parametrize("posterior", ["mean", "sample", "keep"])
def test_latents_go_through_the_store(tmp_path: Path, posterior: str) -> None:
    of = encoding(posterior)
    kept = of(PIXELS, range(11))
    assert kept.keys() == ({"x", "std"} if posterior == "keep" else {"x"})
    if posterior != "sample":
        np.testing.assert_allclose(kept["x"], MEAN, atol=1e-5)
        np.testing.assert_allclose(kept.get("std", STD), STD, atol=1e-5)
    form: Any = {"dtype": "float32", "levels": None, "spread": of.spread}
    plan = StoreLayout(items=range(11), shape=(4, 4, 4), chunk=2, shard=4, **form)
    write(tmp_path / "train.zarr", plan, lambda r: of(PIXELS[r.start : r.stop], r), of.attrs)
    stored = open_split([tmp_path], "train")
    np.testing.assert_allclose(stored.all(), kept["x"], atol=1e-5)
    assert stored.attrs["scaling_factor"] == 0.25 and stored.attrs["posterior"] == posterior
    assert stored.attrs["provenance"] == {"source": "a test"}
    assert stored.levels is None
