"""Images become what the store keeps, and a store of them gives latents back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ocm_core.latents.vae import LatentEncoding, Vae
from ocm_core.store.layout import StoreLayout
from ocm_core.store.reader import open_split
from ocm_core.store.writer import write

from .tiny import tiny

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
    form: Any = {"dtype": of.dtype, "levels": of.levels, "spread": of.spread}
    plan = StoreLayout(items=range(11), shape=(4, 4, 4), chunk=2, shard=4, **form)
    write(tmp_path / "train.zarr", plan, lambda r: of(PIXELS[r.start : r.stop], r), of.attrs)
    stored = open_split([tmp_path], "train")
    np.testing.assert_allclose(stored.all(), kept["x"], atol=1e-5)
    assert stored.attrs["scaling_factor"] == 0.25 and stored.attrs["posterior"] == posterior
    assert stored.attrs["provenance"] == {"source": "a test"}
    assert stored.levels is None
