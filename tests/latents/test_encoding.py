"""Images become what the store keeps, and a store of them gives latents back."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from numpy import ndarray

from ocm_core.latents.encoding import LatentEncoding, Posterior
from ocm_core.latents.vae import Vae
from ocm_core.store.layout import StoreLayout
from ocm_core.store.reader import open_split
from ocm_core.store.writer import write

from .tiny import tiny

PIXELS = np.random.default_rng(0).integers(0, 256, (11, 3, 16, 16), dtype=np.uint8)


def encoding(posterior: Posterior, batch_size: int = 4, seed: int = 9) -> LatentEncoding:
    return LatentEncoding(Vae(tiny()), 256, posterior, seed, batch_size, {"source": "a test"})


def expected() -> tuple[ndarray, ndarray]:
    mean, std = Vae(tiny()).encode(torch.from_numpy(PIXELS / 127.5 - 1).float())
    return mean.numpy(), std.numpy()


def test_the_mean_is_the_posteriors_mean() -> None:
    found = encoding("mean")(PIXELS, range(11))
    assert found.keys() == {"x"}
    np.testing.assert_allclose(found["x"], expected()[0], atol=1e-5)


def test_what_is_kept_is_mean_and_standard_deviation() -> None:
    found = encoding("keep")(PIXELS, range(11))
    for values, wanted in zip((found["x"], found["std"]), expected(), strict=True):
        np.testing.assert_allclose(values, wanted, atol=1e-5)


def test_a_draw_belongs_to_its_item_and_seed() -> None:
    whole = encoding("sample")(PIXELS, range(20, 31))["x"]
    mean, std = expected()
    noise = (whole - mean) / std
    assert abs(noise.mean()) < 0.1 and abs(noise.std() - 1) < 0.1
    part = encoding("sample")(PIXELS[4:8], range(24, 28))["x"]
    np.testing.assert_array_equal(part, whole[4:8])
    assert not np.allclose(encoding("sample", seed=10)(PIXELS, range(20, 31))["x"], whole)
    assert not np.allclose(encoding("sample")(PIXELS, range(11))["x"], whole)


@pytest.mark.parametrize("posterior", ["mean", "sample", "keep"])
def test_latents_go_through_the_store(tmp_path: Path, posterior: Posterior) -> None:
    of = encoding(posterior)
    plan = StoreLayout(
        items=range(11),
        shape=(4, 4, 4),
        dtype=of.dtype,
        levels=of.levels,
        spread=of.spread,
        chunk=2,
        shard=4,
    )
    write(tmp_path / "train.zarr", plan, lambda r: of(PIXELS[r.start : r.stop], r), of.attrs)
    stored = open_split([tmp_path], "train")
    np.testing.assert_allclose(stored.all(), of(PIXELS, range(11))["x"], atol=1e-5)
    assert stored.attrs["scaling_factor"] == 0.25 and stored.attrs["posterior"] == posterior
    assert stored.attrs["provenance"] == {"source": "a test"}
    assert stored.levels is None
