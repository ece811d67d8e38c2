"""Any diffusers UNet2DModel is a score network: same outputs, same contract, clear refusals."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from ocm_core.diffusion import schedule
from ocm_core.diffusion.denoiser import Denoiser, TimeConvention
from ocm_core.diffusion.score_network import ScoreNetwork, TrunkFeatures
from ocm_core.errors import OcmError
from ocm_core.networks.diffusers import wrapped
from ocm_core.networks.diffusers_unet import DiffusersUNet
from ocm_core.networks.keys import export_published

from .contract import NetworkContract
from .diffusers_cases import CLASSES, CONFIGS, PLAIN, OwnModel, model, own_model
from .golden import Golden

SKIPPING = {
    "down_block_types": ("SkipDownBlock2D", "SkipDownBlock2D"),
    "up_block_types": ("SkipUpBlock2D", "SkipUpBlock2D"),
}


class TestDiffusersUNet(NetworkContract):
    # an untrained model is whatever diffusers draws
    test_untrained_network_predicts_zero = None
    test_untrained_blocks_pass_their_input_on = None
    goldens: ClassVar = tuple(CONFIGS)

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        if "case" in metafunc.fixturenames:
            cases = [pytest.param(own_model(name), id=name) for name in self.goldens]
            metafunc.parametrize("case", cases)

    @pytest.fixture
    def first(self) -> OwnModel:
        return own_model("plain")

    def test_wrapping_changes_nothing(self, case: Golden) -> None:
        """Same numbers as diffusers' own pass, before and after, from the same parameters."""
        reference = model(case.meta["config"])
        x, time, label = case.inputs
        time = time.long()
        with torch.no_grad():
            before = reference(x, time, label).sample
            network = DiffusersUNet(reference)
            assert_close(network(x, time, label), before, atol=1e-6, rtol=0)
            assert torch.equal(reference(x, time, label).sample, before)
        exported = export_published(network)
        assert exported.keys() == reference.state_dict().keys()
        for key, tensor in reference.state_dict().items():
            assert exported[key].data_ptr() == tensor.data_ptr()

    def test_embedding_is_what_the_blocks_are_given(self, case: Golden) -> None:
        network = case.network()
        given = []
        block = network.get_submodule("trunk.down_blocks.0.resnets.0")
        block.register_forward_pre_hook(lambda _, inputs: given.append(inputs[1]))
        assert torch.equal(case.features(network).embedding, given[0])

    def test_vjp_agrees_with_finite_differences(self, case: Golden) -> None:
        x, time, label = case.inputs
        network = case.network().double()
        denoiser = Denoiser(network, schedule.linear(1000), TimeConvention(shift=1))
        t, draw = time.long() + 1, torch.Generator().manual_seed(3)
        x, v, w = (torch.randn(x.shape, generator=draw, dtype=torch.float64) for _ in range(3))
        with torch.no_grad():
            upper, lower = (denoiser.predict(x + h * v, t, label).eps for h in (1e-5, -1e-5))
        slope = ((upper - lower) / 2e-5 * w).flatten(1).sum(1)
        product = (denoiser.predict(x, t, label).vjp(w) * v).flatten(1).sum(1)
        assert slope.abs().min() > 1e-3
        assert_close(product, slope, rtol=1e-6, atol=1e-7)

    @pytest.mark.parametrize("kind", ["simple", "complex"])
    def test_heads_train_on_images_in_channels_last_order(self, first: Golden, kind: str) -> None:
        """Images read from files have it."""
        x, time, _ = first.inputs
        network = first.network()
        head = network.make_head(kind)
        nn.init.normal_(head.get_parameter("conv.weight"))
        gradients = []
        for layout in (torch.contiguous_format, torch.channels_last):
            features = network.features(x.contiguous(memory_format=layout), time)
            output = head(TrunkFeatures(*(part.detach() for part in features)))
            gradients.append(torch.autograd.grad(output.sum(), list(head.parameters())))
        assert_close(*gradients, atol=1e-3, rtol=1e-4)

    def test_complex_heads_read_the_embedding(self, case: Golden) -> None:
        network = case.network()
        head, features = network.make_head("complex").eval(), case.features(network)
        nn.init.normal_(head.get_parameter("conv.weight"))
        nn.init.normal_(head.get_parameter("residual.conv2.weight"))
        changed = features._replace(embedding=features.embedding + 1.0)
        assert not torch.allclose(head(features), head(changed), atol=1e-3)

    @pytest.mark.parametrize(
        ("name", "label", "message"),
        [
            ("plain", torch.tensor([0, 0, 0]), "is unconditional; pass no label"),
            ("classes", None, "has no null class; pass a label"),
            ("classes", torch.tensor([0, 1, CLASSES]), r"classes 0 to 4 .*pass a label"),
        ],
    )
    def test_labels_that_do_not_fit_are_refused(
        self, name: str, label: torch.Tensor | None, message: str
    ) -> None:
        case = own_model(name)
        with pytest.raises(OcmError, match=message):
            case.network()(*case.inputs[:2], label)

    @pytest.mark.parametrize("shape", [(1, 1, 8, 8), (1, 3, 8, 7)])
    def test_images_that_do_not_fit_are_refused(
        self, network: ScoreNetwork, shape: tuple[int, ...]
    ) -> None:
        with pytest.raises(OcmError, match=r"takes 3 channels and sides that are multiples of 2"):
            network(torch.zeros(shape), torch.zeros(1))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"out_channels": 4}, "out_channels=4; expected in_channels=3, or 6"),
        ({"time_embedding_type": "fourier"}, "time_embedding_type='fourier'"),
        ({"class_embed_type": "timestep"}, "class_embed_type='timestep'; expected None"),
        ({"class_embed_type": "identity"}, "class_embed_type='identity'; expected None"),
        (SKIPPING, "up_block_types: skip blocks"),
    ],
)
def test_models_that_mean_something_else_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(OcmError, match=message):
        DiffusersUNet(model(PLAIN | change))


def test_other_networks_are_refused_by_name() -> None:
    with pytest.raises(OcmError, match=r"'Linear' is unknown; .*write a subclass of ScoreNetwork"):
        wrapped(nn.Linear(1, 1))
