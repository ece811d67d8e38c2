"""Operations are counted on the networks themselves."""

from __future__ import annotations

import pytest

from ocm_core.doctor.work import INCEPTION_OPERATIONS, measure
from ocm_core.params.compose import compose

GIGA = {"cifar10_ls": 16.766, "celeba64": 48.101, "imagenet64": 79.473, "imagenet256": 237.243}


@pytest.mark.parametrize("name", GIGA)
def test_a_pass_of_the_published_networks(name: str) -> None:
    """As many as torch's formulas give for the published code."""
    size = measure(compose(name), "score")
    assert size.operations == pytest.approx(1e9 * GIGA[name], rel=1e-4)
    assert size.activations > 0


def test_a_linear_network_takes_two_operations_a_weight() -> None:
    size = measure(compose("toy_mog9"), "score")
    assert 0.5 <= size.operations / (2 * size.weights / 4) <= 1.01  # biases are added, not counted


def test_features_of_latents_are_those_of_decoded_images() -> None:
    latents, pixels = compose("imagenet256"), compose("celeba64")
    decoding = measure(latents, "vae").operations
    assert measure(latents, "features").operations == decoding + INCEPTION_OPERATIONS
    assert measure(pixels, "features").operations == INCEPTION_OPERATIONS
    assert measure(pixels, "vae").operations == 0


@pytest.mark.parametrize("name", ["digits", "cifar10_small"])
def test_feature_spaces_without_a_download_are_counted(name: str) -> None:
    assert measure(compose(name), "features").operations > 1e5


def test_points_have_no_features() -> None:
    assert measure(compose("toy_mog9"), "features").operations == 0
