"""What every score network promises; a family's test class inherits it and names its goldens."""

from collections.abc import Callable, Sequence
from functools import partial

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from ocm_core.diffusion.score_network import ScoreNetwork
from ocm_core.errors import OcmError
from ocm_core.networks.keys import export_published, load_published, published_keys

from .golden import Golden, golden

assert_same = partial(assert_close, atol=1e-5, rtol=0.0)
# Root mean square error over the output's standard deviation; measured: UNets 0.016, DiT 0.007.
BFLOAT16 = 0.025


class NetworkContract:
    goldens: Sequence[str]
    find: Callable[[str], Golden] = staticmethod(golden)

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        if "case" in metafunc.fixturenames:
            cases = [pytest.param(self.find(name), id=name) for name in self.goldens]
            metafunc.parametrize("case", cases)

    @pytest.fixture
    def first(self) -> Golden:
        return self.find(self.goldens[0])

    @pytest.fixture
    def network(self, first: Golden) -> ScoreNetwork:
        return first.network()

    def test_outputs_are_those_of_the_reference(self, case: Golden) -> None:
        network, head = case.load()
        features = case.features(network)
        assert_same(network.readout(features), case.output)
        if head is not None:
            assert_same(head(features), case.arrays["head"])

    def test_forward_is_readout_of_features(self, first: Golden, network: ScoreNetwork) -> None:
        output = network(*first.inputs)
        assert torch.equal(output, network.readout(first.features(network)))
        assert torch.equal(output, network(*first.inputs))

    def test_output_has_the_declared_channels(self, case: Golden) -> None:
        network, (x, _, _) = case.network(), case.inputs
        output = network(*case.inputs)
        assert output.shape == (len(x), x.shape[1] * network.out_channels_per_input, *x.shape[2:])
        assert network.learns_variance is ("learned_variance" in case.arrays)

    def test_features_are_batch_first_and_rows_independent(
        self, first: Golden, network: ScoreNetwork
    ) -> None:
        whole = first.features(network)
        with torch.no_grad():
            row = network.features(*(None if part is None else part[1:2] for part in first.inputs))
        for part, expected in zip(row, whole, strict=True):
            assert_same(part, expected[1:2])

    def test_heads_are_shaped_like_the_input_and_start_at_zero(
        self, first: Golden, network: ScoreNetwork
    ) -> None:
        features = first.features(network)
        for kind in network.head_kinds:
            output = network.make_head(kind)(features)
            assert_close(output, torch.zeros_like(first.inputs[0]), atol=0, rtol=0)

    def test_heads_have_distinct_published_keys(self, network: ScoreNetwork) -> None:
        trunk = set(published_keys(network).values())
        for kind in network.head_kinds:
            names = published_keys(network.make_head(kind))
            assert len(set(names.values()) - trunk) == len(names)

    def test_heads_that_there_are_not_are_refused(self, network: ScoreNetwork) -> None:
        with pytest.raises(OcmError, match=r"'simpel'.*valid: .*" + network.head_kinds[0]):
            network.make_head("simpel")
        with pytest.raises(OcmError, match="leave out width"):
            network.make_head(network.head_kinds[0], width=8)

    def test_untrained_network_predicts_zero(self, first: Golden) -> None:
        assert not first.fresh().eval()(*first.inputs).any()

    def test_untrained_blocks_pass_their_input_on(self, first: Golden) -> None:
        network, (x, time, label) = first.fresh().eval(), first.inputs
        with torch.no_grad():
            early, late = network.features(x, time, label), network.features(x, time + 100, label)
        assert not torch.equal(early.embedding, late.embedding)
        assert torch.equal(early.hidden, late.hidden)

    def test_published_round_trip(self, case: Golden) -> None:
        network, other = case.network(), case.fresh().eval()
        load_published(other, export_published(network))
        assert torch.equal(network(*case.inputs), other(*case.inputs))

    def test_jvp_is_adjoint_to_vjp(self, first: Golden, network: ScoreNetwork) -> None:
        network = network.double()
        x, time, label = first.inputs
        x = x.double().requires_grad_()

        def predict(x: Tensor) -> Tensor:
            return network(x, time.double(), label)

        output = predict(x)
        v, w = _rademacher(x, seed=1), _rademacher(output, seed=2)
        _, forward = torch.func.jvp(predict, (x.detach(),), (v,))
        (backward,) = torch.autograd.grad(output, x, w)
        assert forward.abs().max() > 1e-3
        by_row = [(w * forward).flatten(1).sum(1), (v * backward).flatten(1).sum(1)]
        assert_close(*by_row, rtol=1e-9, atol=1e-9)

    def test_channels_last_agrees(self, first: Golden, network: ScoreNetwork) -> None:
        x, time, label = first.inputs
        plain = network(x, time, label)
        network = network.to(memory_format=torch.channels_last)
        assert_same(network(x.to(memory_format=torch.channels_last), time, label), plain)

    def test_bfloat16_stays_close(self, case: Golden) -> None:
        network, (x, time, label) = case.network(), case.inputs
        plain = network(x, time, label)
        output = network.bfloat16()(x.bfloat16(), time, label)
        assert output.dtype == torch.bfloat16
        most = BFLOAT16 * case.meta.get("bfloat16", 1.0)
        assert (output.float() - plain).square().mean().sqrt() < most * plain.std()


def _rademacher(like: Tensor, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 2, like.shape, generator=generator).to(like) * 2 - 1
