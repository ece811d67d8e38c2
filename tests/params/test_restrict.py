"""A stage sees what it declares and nothing else."""

from __future__ import annotations

import pytest

from ocm_core.errors import OcmError
from ocm_core.params.compose import compose
from ocm_core.pipeline.graph import Graph, restrict

KEYS = ["data", "train.heads", "train.moments.draws", "methods.ocm_relative"]


def test_declared_keys_are_there() -> None:
    experiment = compose("toy_mog9")
    seen = restrict(experiment, KEYS, "heads")
    assert seen.name == "toy_mog9"
    assert seen.data == experiment.data
    assert seen.train.heads == experiment.train.heads
    assert set(seen.methods) == {"ocm_relative"}


@pytest.mark.parametrize(
    "key", ["sample", "train.score", "train.selection", "train.moments.seed", "encode", "evaluate"]
)
def test_undeclared_key_names_itself_and_the_stage(key: str) -> None:
    node: object = restrict(compose("toy_mog9"), KEYS, "heads")
    with pytest.raises(
        OcmError, match=rf"stage 'heads' reads {key} without declaring it.*heads.py"
    ):
        for name in key.split("."):
            node = getattr(node, name)


def test_names_that_are_no_keys_stay_attribute_errors() -> None:
    assert not hasattr(restrict(compose("toy_mog9"), KEYS, "heads"), "nonsense")


def test_values_are_those_behind_the_keys() -> None:
    experiment = compose("toy_mog9")
    assert Graph(experiment).values(["train.heads.seed", "data.std"]) == {
        "data.std": experiment.data.model_dump()["std"],
        "train.heads.seed": experiment.train.heads.seed,
    }
