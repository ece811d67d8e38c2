import pytest
import torch

from ocm_core.diffusion.score_network import ScoreNetwork
from ocm_core.errors import OcmError
from ocm_core.networks.iddpm_unet import Config

from .contract import NetworkContract, assert_same
from .golden import Golden, golden


class TestIddpmUNet(NetworkContract):
    goldens = ("iddpm_unet_base", "iddpm_unet_simple", "iddpm_unet_complex")

    @pytest.mark.parametrize("name", ["iddpm_unet_base", "iddpm_unet_complex"])
    def test_times_of_the_reference_wrapper(self, name: str) -> None:
        arrays = golden(name).arrays
        output = golden(name).network()(arrays["x"], arrays["n_to_t"])
        assert_same(output[:, :3], arrays["eps_at_n"])

    def test_a_label_is_refused(self, first: Golden, network: ScoreNetwork) -> None:
        x, time, _ = first.inputs
        with pytest.raises(OcmError, match="IddpmUNet is unconditional"):
            network(x, time, torch.zeros(len(x), dtype=torch.int64))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"conv_resample": False}, "conv_resample=False; only True"),
        ({"num_heads_upsample": 5}, "multiple of decoder_attention_heads=5"),
        ({"out_channels": 4}, "out_channels=4; expected in_channels=3 or 6"),
        ({"channel_mults": [1]}, "'channel_mults'.*did you mean 'channel_mult'"),
        ({"num_heads": 5}, "base_channels=32 is not a multiple of attention_heads=5"),
    ],
)
def test_published_arguments_not_implemented_are_refused(
    change: dict[str, object], message: str
) -> None:
    with pytest.raises(OcmError, match=message):
        Config.from_published(golden("iddpm_unet_base").meta["config"] | change)


def test_missing_published_argument_is_named() -> None:
    arguments = dict(golden("iddpm_unet_base").meta["config"])
    del arguments["model_channels"]
    with pytest.raises(OcmError, match="'model_channels' is missing"):
        Config.from_published(arguments)
