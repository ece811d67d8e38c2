"""What encoding ImageNet would take, counted."""

from __future__ import annotations

import pytest

from ocm_core.latents.cost import A100_BFLOAT16, encoder_flops, encoding_cost, throughput

from .tiny import CONFIG

PUBLISHED = {
    "in_channels": 3,
    "out_channels": 3,
    "latent_channels": 4,
    "block_out_channels": [128, 256, 512, 512],
    "layers_per_block": 2,
    "norm_num_groups": 32,
}


def test_flops_grow_with_the_area_but_for_the_attention() -> None:
    plain = {**CONFIG, "mid_block_add_attention": False}
    assert encoder_flops(plain, (3, 64, 64)) == 4 * encoder_flops(plain, (3, 32, 32))
    assert encoder_flops(CONFIG, (3, 64, 64)) > 4 * encoder_flops(CONFIG, (3, 32, 32))


def test_a_single_layer_is_counted_as_by_hand() -> None:
    """conv_in, one residual block of two convolutions, the middle, conv_out, 1×1."""
    config = {
        "in_channels": 1,
        "out_channels": 1,
        "latent_channels": 1,
        "block_out_channels": [2],
        "layers_per_block": 1,
        "norm_num_groups": 1,
        "mid_block_add_attention": False,
    }
    convolutions = [(1, 2, 9), *[(2, 2, 9)] * 2, *[(2, 2, 9)] * 4, (2, 2, 9), (2, 2, 1)]
    macs = sum(a * b * kernel for a, b, kernel in convolutions) * 8 * 8
    assert encoder_flops(config, (1, 8, 8)) == 2 * macs


@pytest.mark.parametrize(("flips", "posterior", "factor"), [(False, "mean", 1), (True, "keep", 4)])
def test_imagenet_is_planned_without_touching_it(flips: bool, posterior: str, factor: int) -> None:
    flops = encoder_flops(PUBLISHED, (3, 256, 256))
    assert 270e9 < flops < 275e9
    rate = throughput(flops, peak=A100_BFLOAT16, utilisation=0.3)
    cost = encoding_cost(
        PUBLISHED,
        (3, 256, 256),
        1_281_167,
        flips=flips,
        posterior=posterior,  # type: ignore[arg-type]
        dtype="float32",
        labelled=True,
        chunk=1024,
        shard=4096,
        jobs=8,
        images_per_second=rate,
    )
    items = 1_281_167 * (2 if flips else 1)
    assert cost.items == items and cost.shards == -(-items // 4096)
    latents = factor * 1_281_167 * 4 * 32 * 32 * 4
    assert latents < cost.bytes < 1.01 * latents
    assert cost.gpu_hours == pytest.approx(items * flops / (312e12 * 0.3) / 3600)
    assert f"in {cost.shards} shards, 8 jobs of" in str(cost)
