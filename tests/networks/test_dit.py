import pytest
import torch

from ocm_core.diffusion.score_network import ScoreNetwork
from ocm_core.errors import OcmError
from ocm_core.networks import build
from ocm_core.rng.batches import BatchRng
from ocm_core.training.batches import DroppedLabels, InMemory

from .contract import NetworkContract, assert_same
from .golden import Golden

TINY = {
    "image_size": 4,
    "patch_size": 2,
    "in_channels": 1,
    "width": 16,
    "depth": 1,
    "attention_heads": 2,
    "num_classes": 3,
}


class TestDiT(NetworkContract):
    goldens = ("dit_learn_sigma", "dit_fixed_sigma")

    def test_doubled_batch_of_guidance(self, first: Golden, network: ScoreNetwork) -> None:
        arrays = first.arrays
        output = network(arrays["cfg_x"], arrays["cfg_t"], arrays["cfg_y"])
        assert_same(output, arrays["cfg_plain"])

    def test_no_label_is_the_null_class(self, first: Golden, network: ScoreNetwork) -> None:
        half = len(first.arrays["cfg_x"]) // 2
        output = network(first.arrays["cfg_x"][half:], first.arrays["cfg_t"][half:])
        assert network.null_label == first.meta["config"]["num_classes"]
        assert_same(output, first.arrays["cfg_plain"][half:])

    def test_untrained_positions_are_the_published_table(self, case: Golden) -> None:
        assert_same(case.fresh().positions, case.arrays["weights/pos_embed"])

    def test_positions_are_not_trained(self, network: ScoreNetwork) -> None:
        assert "positions" not in dict(network.named_parameters())
        assert "positions" in network.state_dict()

    def test_training_replaces_labels_by_the_null_class(self, network: ScoreNetwork) -> None:
        labels = torch.arange(1000) % network.null_label
        items = InMemory(torch.arange(1000.0)[:, None], labels)
        x0, drawn = DroppedLabels(items, network).batch(BatchRng(0, 3, 500))
        dropped = drawn == network.null_label
        assert torch.equal(drawn[~dropped], labels[x0[~dropped, 0].long()])
        assert 25 <= dropped.sum() <= 80  # binomial(500, 0.1)


def test_without_label_dropout_a_label_is_required() -> None:
    network = build("dit", TINY | {"label_dropout": 0.0})
    assert network.null_label is None
    with pytest.raises(OcmError, match="no null class; pass a label"):
        network(torch.zeros(1, 1, 4, 4), torch.zeros(1))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"image_size": 5}, "image_size=5 is not a multiple of patch_size=2"),
        ({"attention_heads": 3}, "width=16 is not a multiple of attention_heads=3"),
        ({"width": 18}, "configuration of dit: width: .*multiple of 4"),
        ({"label_dropout": 1.5}, "configuration of dit: label_dropout: .*less than 1"),
    ],
)
def test_impossible_configurations_are_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(OcmError, match=message):
        build("dit", TINY | change)
