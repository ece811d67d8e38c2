"""diffusers' DiT is a score network: same outputs, heads of kind `adaln`, a null class."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from ocm_core.errors import OcmError
from ocm_core.networks.diffusers import build
from ocm_core.networks.diffusers_dit import DiffusersDiT, DiTTransformer2DModel
from ocm_core.networks.keys import export_published, load_published

SMALL = {
    "num_attention_heads": 2,
    "attention_head_dim": 4,
    "in_channels": 4,
    "out_channels": 8,
    "num_layers": 2,
    "sample_size": 8,
    "patch_size": 2,
    "num_embeds_ada_norm": 5,
}


def tiny_dit(seed: int = 0, **changes: int) -> DiTTransformer2DModel:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        made = DiTTransformer2DModel(**SMALL | changes)
        with torch.no_grad():
            for parameter in made.parameters():
                parameter += 0.1 * torch.randn_like(parameter)
    return made.eval()


@pytest.mark.parametrize("outputs", [4, 8])
def test_outputs_are_those_of_diffusers(outputs: int) -> None:
    model = tiny_dit(out_channels=outputs)
    network = DiffusersDiT(model)
    x, time = torch.randn(3, 4, 8, 8), torch.tensor([0.0, 17.0, 899.0])
    label = torch.tensor([4, 0, 5])
    with torch.no_grad():
        expected = model(x, timestep=time, class_labels=label).sample
        assert_close(network(x, time, label), expected, atol=1e-5, rtol=0)
        null = model(x, timestep=time, class_labels=torch.full((3,), 5)).sample
        assert_close(network(x, time), null, atol=1e-5, rtol=0)
    assert network.learns_variance is (outputs == 8)
    assert network.null_label == 5
    assert export_published(network).keys() == model.state_dict().keys()


def test_a_new_model_takes_the_weights() -> None:
    network = DiffusersDiT(tiny_dit())
    again = build({**SMALL, "_class_name": "DiTTransformer2DModel"}).eval()
    load_published(again, export_published(network))
    x, time, label = torch.randn(2, 4, 8, 8), torch.tensor([3.0, 4.0]), torch.tensor([1, 2])
    assert torch.equal(again(x, time, label), network(x, time, label))


def test_heads_begin_at_zero_and_read_the_embedding() -> None:
    network = DiffusersDiT(tiny_dit())
    x, time, label = torch.randn(2, 4, 8, 8), torch.tensor([3.0, 400.0]), torch.tensor([1, 2])
    features = network.features(x, time, label)
    head = network.make_head("adaln")
    assert head(features).shape == x.shape and not head(features).any()
    with torch.no_grad():
        for parameter in head.parameters():
            parameter += torch.randn_like(parameter)
    changed = features._replace(embedding=features.embedding + 1.0)
    assert not torch.allclose(head(features), head(changed), atol=1e-3)


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(OcmError, match="out_channels=6; expected in_channels=4, or 8"):
        DiffusersDiT(tiny_dit(out_channels=6))
    with pytest.raises(OcmError, match=r"this model takes \(4, 8, 8\)"):
        DiffusersDiT(tiny_dit())(torch.zeros(1, 4, 16, 16), torch.zeros(1))
