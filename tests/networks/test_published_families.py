"""The three families of published networks: the contract, and what each has of its own."""

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from ocm_core.diffusion.score_network import ScoreNetwork
from ocm_core.errors import OcmError
from ocm_core.networks import build
from ocm_core.networks._unet import UNet
from ocm_core.networks.iddpm_unet import IddpmAttentionBlock
from ocm_core.networks.keys import export_published, load_published
from ocm_core.rng.batches import BatchRng
from ocm_core.training.batches import DroppedLabels, InMemory

from .contract import NetworkContract, assert_same
from .golden import Golden, golden, our_config

X, TIME, LABEL = torch.randn(2, 3, 8, 8), torch.tensor([3.0, 700.0]), torch.tensor([1, 4])
DIT, IDDPM = (our_config(golden(n).meta["config"]) for n in ("dit_learn_sigma", "iddpm_unet_base"))


class TestDdpmUNet(NetworkContract):
    goldens = ("ddpm_unet_base", "ddpm_unet_simple", "ddpm_unet_complex")

    def test_times_of_the_reference_wrapper(self, first: Golden, network: ScoreNetwork) -> None:
        output = network(first.arrays["x"], first.arrays["n_to_t"])
        assert_same(output, first.arrays["eps_at_n"])

    def test_labels_and_odd_sides_are_refused(self, first: Golden, network: ScoreNetwork) -> None:
        x, time, _ = first.inputs
        with pytest.raises(OcmError, match="DdpmUNet is unconditional"):
            network(x, time, torch.zeros(len(x), dtype=torch.int64))
        with pytest.raises(OcmError, match=r"\(8, 7\) is not a multiple of 2"):
            network(torch.zeros(1, 3, 8, 7), torch.zeros(1))

    def test_dropout_acts_in_training_only(self, first: Golden, network: ScoreNetwork) -> None:
        evaluated = network(*first.inputs)
        assert not torch.allclose(network.train()(*first.inputs), evaluated)
        assert torch.equal(network.eval()(*first.inputs), evaluated)


class TestIddpmUNet(NetworkContract):
    goldens = ("iddpm_unet_base", "iddpm_unet_simple", "iddpm_unet_complex")

    @pytest.mark.parametrize("name", ["iddpm_unet_base", "iddpm_unet_complex"])
    def test_times_of_the_reference_wrapper(self, name: str) -> None:
        arrays = golden(name).arrays
        output = golden(name).network()(arrays["x"], arrays["n_to_t"])
        assert_same(output[:, :3], arrays["eps_at_n"])


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

    def test_positions_are_the_published_table_and_not_trained(self, case: Golden) -> None:
        network = case.fresh()
        assert_same(network.positions, case.arrays["weights/pos_embed"])
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
    network = build("dit", DIT | {"label_dropout": 0.0})
    assert network.null_label is None
    with pytest.raises(OcmError, match="no null class; pass a label"):
        network(torch.zeros(1, 4, 8, 8), torch.zeros(1))


@pytest.mark.parametrize(
    ("family", "change", "message"),
    [
        ("dit", {"image_size": 5}, "image_size=5 is not a multiple of patch_size=2"),
        ("dit", {"attention_heads": 5}, "width=48 is not a multiple of attention_heads=5"),
        ("dit", {"width": 18}, "configuration of dit: width: .*multiple of 4"),
        ("dit", {"label_dropout": 1.5}, "configuration of dit: label_dropout: .*less than 1"),
        ("iddpm_unet", {"attention_heads": 5}, "base_channels=32 is .* attention_heads=5"),
        ("iddpm_unet", {"decoder_attention_heads": 5}, "multiple of decoder_attention_heads=5"),
    ],
)
def test_impossible_sizes_are_refused(family: str, change: dict[str, int], message: str) -> None:
    with pytest.raises(OcmError, match=message):
        build(family, (DIT if family == "dit" else IDDPM) | change)


def drawn(family: str, **changes: object) -> UNet:
    """Every parameter other than zero, so that each layer has its say."""
    network = build(family, our_config(golden(f"{family}_base").meta["config"]) | changes)
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(0)
        for parameter in network.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    return network.eval()


def test_a_class_is_added_to_the_embedding() -> None:
    network, plain = drawn("iddpm_unet", num_classes=5), drawn("iddpm_unet")
    with torch.no_grad():
        state, table = network.state_dict(), network.get_parameter("label_table.weight")
        plain.load_state_dict({key: state[key] for key in state if "label_table" not in key})
        expected = plain.embed(X, TIME, None) + table[LABEL]
        torch.testing.assert_close(network.features(X, TIME, LABEL).embedding, expected)
        assert not torch.allclose(network(X, TIME, LABEL), network(X, TIME, LABEL.flip(0)))
    assert network.conditional and not plain.conditional
    with pytest.raises(OcmError, match="has no null class; pass a label"):
        network(X, TIME)
    keys = export_published(network).keys() - export_published(plain).keys()
    assert keys == {"label_emb.weight"}


def test_without_scale_and_shift_the_embedding_is_added_before_the_norm() -> None:
    block = drawn("iddpm_unet", scale_shift=False).get_submodule("middle.0.residual")
    x = torch.randn(2, block.conv_in.in_channels, 4, 4)
    embedding = torch.randn(2, block.embed.in_features)
    hidden = block.conv_in(F.silu(block.norm_in(x)))
    hidden = hidden + block.embed(F.silu(embedding))[:, :, None, None]
    expected = x + block.conv_out(F.silu(block.norm_out(hidden)))
    torch.testing.assert_close(block(x, embedding), expected)
    assert block.embed.out_features == block.conv_in.out_channels


def test_heads_of_attention_on_the_way_up_are_their_own() -> None:
    network = drawn("iddpm_unet", decoder_attention_heads=1, attention_heads=2)
    plain = drawn("iddpm_unet", attention_heads=2)
    modules = network.named_modules()
    blocks = [(name, m.heads) for name, m in modules if isinstance(m, IddpmAttentionBlock)]
    found = {(name.startswith("decoder"), heads) for name, heads in blocks}
    assert found == {(True, 1), (False, 2)}
    load_published(plain, export_published(network))
    with torch.no_grad():
        assert not torch.allclose(plain(X, TIME), network(X, TIME), atol=1e-5)


def test_without_convolutions_images_are_averaged_and_copied() -> None:
    network = drawn("ddpm_unet", resample_convs=False)
    image = torch.arange(16.0).view(1, 1, 4, 4)
    down = network.get_submodule("encoder.0.resample")
    up = network.get_submodule("decoder.0.resample")
    assert torch.equal(down(image)[0, 0, 0], torch.tensor([2.5, 4.5]))
    assert torch.equal(up(image)[0, 0, :2, :4], torch.tensor([[0.0, 0, 1, 1], [0, 0, 1, 1]]))
    assert not any("sample" in key for key in export_published(network))
    assert network(X, TIME).shape == X.shape


def test_weights_are_drawn_from_one_stream_in_the_order_of_layers() -> None:
    torch.manual_seed(0)
    first = drawn("iddpm_unet").get_parameter("time_mlp.0.weight")
    torch.manual_seed(0)
    expected = nn.Linear(32, 128).weight
    torch.manual_seed(0)
    assert torch.equal(first, expected + 0.1 * torch.randn_like(expected))


@pytest.mark.parametrize(
    ("name", "backend"),
    [
        ("ddpm_unet_complex", "aot_eager"),
        pytest.param("ddpm_unet_complex", "inductor", marks=pytest.mark.slow),
        ("iddpm_unet_complex", "aot_eager"),  # inductor takes minutes, and agrees as well
        ("dit_learn_sigma", "inductor"),
    ],
)
def test_compiled_network_agrees(name: str, backend: str) -> None:
    case = golden(name)
    network, head = case.load()

    @torch.no_grad()
    def outputs(*inputs: Tensor | None) -> list[Tensor]:
        features = network.features(*inputs)
        return [network.readout(features)] + ([] if head is None else [head(features)])

    output, *second = torch.compile(outputs, fullgraph=True, backend=backend)(*case.inputs)
    assert_same(output, case.output)
    for value in second:
        assert_same(value, case.arrays["head"])
