import pytest
import torch

from ocm_core.diffusion.score_network import ScoreNetwork
from ocm_core.errors import OcmError

from .contract import NetworkContract, assert_same
from .golden import Golden


class TestDdpmUNet(NetworkContract):
    goldens = ("ddpm_unet_base", "ddpm_unet_simple", "ddpm_unet_complex")

    def test_times_of_the_reference_wrapper(self, first: Golden, network: ScoreNetwork) -> None:
        output = network(first.arrays["x"], first.arrays["n_to_t"])
        assert_same(output, first.arrays["eps_at_n"])

    def test_a_label_is_refused(self, first: Golden, network: ScoreNetwork) -> None:
        x, time, _ = first.inputs
        with pytest.raises(OcmError, match="DdpmUNet is unconditional"):
            network(x, time, torch.zeros(len(x), dtype=torch.int64))

    def test_an_image_that_cannot_be_halved_is_refused(self, network: ScoreNetwork) -> None:
        with pytest.raises(OcmError, match=r"\(8, 7\) is not a multiple of 2"):
            network(torch.zeros(1, 3, 8, 7), torch.zeros(1))

    def test_dropout_acts_in_training_only(self, first: Golden, network: ScoreNetwork) -> None:
        evaluated = network(*first.inputs)
        assert not torch.allclose(network.train()(*first.inputs), evaluated)
        assert torch.equal(network.eval()(*first.inputs), evaluated)
