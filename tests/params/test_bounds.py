"""What asks for too much is refused while it is read, before anything waits for it."""

from __future__ import annotations

from pathlib import Path
from time import process_time

import pytest

from ocm_core.errors import OcmError
from ocm_core.params.compose import compose
from ocm_core.params.document import read_yaml


@pytest.mark.parametrize(
    ("experiment", "override", "key"),
    [
        ("digits", "encode.jobs=1000000000", "encode.jobs"),
        ("digits", "schedule.steps=1000000000", "schedule.steps"),
        ("digits", "train.heads.learning_rate=inf", "train.heads.learning_rate"),
        ("digits", "train.heads.learning_rate=nan", "train.heads.learning_rate"),
        ("digits", "train.heads.weight_decay=inf", "train.heads.weight_decay"),
        ("digits", "sample.samplers.ddpm.last_sigma=inf", "sample.samplers.ddpm.last_sigma"),
        ("digits", "network.time.scale=nan", "network.time.scale"),
        ("digits", "network.config.blocks_per_level=100000", "network: .*blocks_per_level"),
        ("digits", "network.config.base_channels=1000000", "network: .*base_channels"),
        ("mnist_latent", "network.config.depth=100000", "network: .*depth"),
        ("mnist_latent", "+network.config.mlp_ratio=inf", "network: .*mlp_ratio"),
        ("mnist_latent", "encode.latent.vae.config.latent_channels=x", "encode.latent.vae.config"),
        ("toy_mog9", "network.depth=100000", "network.depth"),
        ("toy_mog9", "head.sizes.width=100000", "head.sizes.width"),
        ("toy_mog9", "data.layout.per_axis=100000", "data.layout.per_axis"),
        ("toy_mog9", "data.train_size=1000000000", "data.train_size"),
    ],
)
def test_a_value_beyond_its_bound(experiment: str, override: str, key: str) -> None:
    with pytest.raises(OcmError, match=rf"params/experiment/{experiment}\.yaml: {key}"):
        compose(experiment, [override])


def test_a_grid_of_too_many_samples() -> None:
    """Each list is short enough, and their product is not."""
    steps = ",".join(map(str, range(1, 301)))
    override = f"sample.samplers.ddpm.grids=[{{steps: [{steps}], guidance: [1.0]}}]"
    with pytest.raises(OcmError, match=r"sample: .* combinations .* at most 20000"):
        compose("toy_mog9", [override, "sample.seeds=[0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15]"])


def test_few_lines_that_stand_for_many_values(tmp_path: Path) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 10)]
    file = tmp_path / "x.yaml"
    file.write_text("\n".join(lines))
    with pytest.raises(OcmError, match=r"x\.yaml: .* values, with its aliases written out"):
        read_yaml(file)
    file.write_text("a: &a [*a]")
    with pytest.raises(OcmError, match=r"x\.yaml: .* aliases written out"):
        read_yaml(file)


def test_an_override_that_is_a_book() -> None:
    begun = process_time()
    with pytest.raises(OcmError, match="longer than 2000 characters"):
        compose("toy_mog9", [f"report.title={'[' * 100_000}"])
    assert process_time() - begun < 2.0
