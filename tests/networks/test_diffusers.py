"""Models of diffusers are score networks: same outputs, same contract, clear refusals."""

from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from ocm_core import api
from ocm_core.diffusion import schedule
from ocm_core.diffusion.denoiser import Denoiser, TimeConvention
from ocm_core.diffusion.score_network import ScoreNetwork, TrunkFeatures
from ocm_core.errors import OcmError
from ocm_core.networks import build
from ocm_core.networks.diffusers import Prompts, wrapped
from ocm_core.networks.keys import export_published
from tests.init.folders import write_stable_diffusion

from .contract import NetworkContract
from .diffusers_cases import CASES, CLASSES, adapted, drawn, output_of, own_model
from .golden import Golden

from diffusers import (  # isort: skip
    FluxTransformer2DModel,
    SanaTransformer2DModel,
    SD3Transformer2DModel,
    StableDiffusionPipeline,
)

# models that compute a norm or an attention in single precision, whatever theirs is
IN_SINGLE = (SD3Transformer2DModel, SanaTransformer2DModel, FluxTransformer2DModel)
SKIPPING = {
    "down_block_types": ("SkipDownBlock2D", "SkipDownBlock2D"),
    "up_block_types": ("SkipUpBlock2D", "SkipUpBlock2D"),
}


class TestDiffusers(NetworkContract):
    # an untrained model is whatever diffusers draws
    test_untrained_network_predicts_zero = None
    test_untrained_blocks_pass_their_input_on = None
    goldens: ClassVar = tuple(CASES)
    find = staticmethod(own_model)

    def test_wrapping_changes_nothing(self, case: Golden) -> None:
        """Same numbers as diffusers' own pass, before and after, from the same parameters."""
        reference = drawn(*case.meta["case"])
        with torch.no_grad():
            before = output_of(reference, *case.inputs)
            network = adapted(reference)
            assert_close(network(*case.inputs), before, atol=1e-6, rtol=0)
            assert torch.equal(output_of(reference, *case.inputs), before)
        exported = export_published(network)
        assert exported.keys() == reference.state_dict().keys()
        for key, tensor in reference.state_dict().items():
            assert exported[key].data_ptr() == tensor.data_ptr()

    def test_no_label_is_the_null_class(self, case: Golden) -> None:
        network, (x, time, _) = case.network(), case.inputs
        if network.null_label is None:
            return
        assert network.null_label == CLASSES
        null = output_of(drawn(*case.meta["case"]), x, time, torch.full((3,), CLASSES))
        assert_close(network(x, time), null, atol=1e-5, rtol=0)

    def test_embedding_is_what_the_blocks_are_given(self, case: Golden) -> None:
        network, given = case.network(), []
        if not hasattr(network.trunk, "down_blocks"):
            return
        block = network.get_submodule("trunk.down_blocks.0.resnets.0")
        block.register_forward_pre_hook(lambda _, inputs: given.append(inputs[1]))
        assert torch.equal(case.features(network).embedding, given[0])

    def test_vjp_agrees_with_finite_differences(self, case: Golden) -> None:
        x, time, label = case.inputs
        single = case.meta["case"][0] in IN_SINGLE
        h, rtol = (1e-4, 1e-3) if single else (1e-5, 1e-6)
        network = case.network().double()
        denoiser = Denoiser(network, schedule.linear(1000), TimeConvention(shift=1))
        t, draw = time.long() + 1, torch.Generator().manual_seed(3)
        x, v, w = (torch.randn(x.shape, generator=draw, dtype=torch.float64) for _ in range(3))
        with torch.no_grad():
            upper, lower = (denoiser.predict(x + s * v, t, label).eps for s in (h, -h))
        slope = ((upper - lower) / (2 * h) * w).flatten(1).sum(1)
        product = (denoiser.predict(x, t, label).vjp(w) * v).flatten(1).sum(1)
        assert slope.abs().min() > 1e-3
        assert_close(product, slope, rtol=rtol, atol=rtol / 10)

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

    def test_heads_read_the_embedding(self, case: Golden) -> None:
        network = case.network()
        head, features = network.make_head(network.head_kinds[-1]).eval(), case.features(network)
        with torch.no_grad():
            for parameter in head.parameters():
                parameter += torch.randn_like(parameter)
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
        with pytest.raises(OcmError, match=message):
            own_model(name).network()(*own_model(name).inputs[:2], label)

    def test_images_that_do_not_fit_are_refused(self) -> None:
        sides = r"takes 3 channels and sides that are multiples of 2"
        cases = {(1, 8, 8): ("plain", sides), (3, 8, 7): ("plain", sides)}
        cases[(4, 16, 16)] = ("dit", r"this model takes \(4, 8, 8\)")
        cases[(4, 8, 6)] = ("sd3", r"this model takes \(4, 8, 8\)")
        cases[(4, 7, 7)] = ("flux", "takes 4 channels and even sides of the same length")
        for shape, (name, message) in cases.items():
            with pytest.raises(OcmError, match=message):
                own_model(name).network()(torch.zeros(1, *shape), torch.zeros(1))


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("plain", {"out_channels": 4}, "out_channels=4; expected in_channels=3, or 6"),
        ("plain", {"time_embedding_type": "fourier"}, "time_embedding_type='fourier'"),
        ("plain", {"class_embed_type": "timestep"}, "class_embed_type='timestep'; expected None"),
        ("plain", {"class_embed_type": "identity"}, "class_embed_type='identity'; expected None"),
        ("plain", SKIPPING, "up_block_types: skip blocks"),
        ("dit", {"out_channels": 6}, "out_channels=6; expected in_channels=4, or 8"),
        ("text", {"out_channels": 3}, "out_channels=3; expected in_channels=4, or 8"),
        ("text", {"num_class_embeds": 3}, "num_class_embeds=3: a condition beside the text"),
        ("text", {"timestep_post_act": "silu"}, "timestep_post_act='silu': a condition beside"),
        ("sd3", {"out_channels": 3}, "out_channels=3; expected in_channels=4, or 8"),
        ("sana", {"guidance_embeds": True}, "guidance_embeds: a distilled model is no posterior"),
        ("flux", {"in_channels": 6}, "in_channels=6, patch_size=1; expected latents that are pa"),
        ("text", {"act_fn": "gelu"}, "act_fn and norm_num_groups: expected 'silu'"),
    ],
)
def test_models_that_mean_something_else_are_refused(
    name: str, change: dict[str, Any], message: str
) -> None:
    kind, config = CASES[name]
    with pytest.raises(OcmError, match=message):
        wrapped(kind(**config | change))


def test_other_networks_and_missing_prompts_are_refused() -> None:
    with pytest.raises(OcmError, match=r"'Linear' is unknown; .*write a subclass of ScoreNetwork"):
        wrapped(nn.Linear(1, 1))
    kind, config = CASES["text"]
    network = build("diffusers", {**config, "_class_name": kind.__name__})
    with pytest.raises(OcmError, match=r"takes text, and has been given no prompts; say which"):
        network(torch.zeros(1, 4, 8, 8), torch.zeros(1))
    assert not Prompts({"encoder_hidden_states": torch.zeros(3, 2, 2)}).state_dict()


@pytest.mark.parametrize("kind", ["simple", "complex"])
def test_the_text_reaches_the_head(kind: str) -> None:
    case = own_model("text")
    network, (x, time, _) = case.network(), case.inputs
    head = network.make_head(kind)
    nn.init.normal_(head.get_parameter("conv.weight"))
    features, changed = (
        network.features(x, time, torch.tensor(labels)) for labels in ([0, 1, 2], [1, 1, 2])
    )
    differs = (head(features) - head(changed)).abs().flatten(1).amax(1) > 1e-4
    assert differs.tolist() == [True, False, False]


@pytest.mark.parametrize("prediction", ["epsilon", "v_prediction"])
def test_prompts_and_predictions_are_those_of_the_pipeline(prediction: str, tmp_path: Path) -> None:
    folder = write_stable_diffusion(tmp_path / "model", prediction)
    denoiser = api.load(folder, prompts=["a cat", "a dog"])
    network: ScoreNetwork = getattr(denoiser.network, "network", denoiser.network)
    pipe = StableDiffusionPipeline.from_pretrained(folder, safety_checker=None)
    conditional, empty = pipe.encode_prompt(["a dog", "a cat"], "cpu", 1, True)
    text, x, label = torch.cat([conditional, empty[:1]]), torch.randn(3, 4, 8, 8), [1, 0, 2]
    alpha_bar = denoiser.schedule.alpha_bar[500]
    with torch.no_grad():
        told = network.texts(x, torch.tensor(label))["encoder_hidden_states"]
        assert_close(told, text, atol=1e-6, rtol=0)
        said = pipe.unet(x, torch.tensor(499), text).sample
        eps = denoiser.predict(x, 500, torch.tensor(label)).eps
    of_v = alpha_bar**0.5 * said + (1 - alpha_bar) ** 0.5 * x
    assert_close(eps, said if prediction == "epsilon" else of_v, atol=1e-5, rtol=0)
    assert network.conditional and network.null_label == 2
