import ast
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

import ocm_core.networks
from ocm_core.diffusion import schedule
from ocm_core.diffusion.score_network import ScoreNetwork
from ocm_core.errors import OcmError
from ocm_core.networks import build, families, load
from ocm_core.networks.mlp import MlpScore

from .diffusers_cases import DIT, PLAIN, TEXT
from .golden import golden

TINY = {
    "in_channels": 1,
    "base_channels": 8,
    "norm_groups": 4,
    "channel_multipliers": [1],
    "blocks_per_level": 1,
    "attention_levels": [],
}


def test_families_that_there_are_not_are_refused() -> None:
    with pytest.raises(OcmError, match=r"'ddpm_unett' is unknown; did you mean 'ddpm_unet'\?"):
        build("ddpm_unett", {})
    with pytest.raises(OcmError, match="'mlp' is unknown"):  # a network, but no family
        build("mlp", {})
    assert {"ddpm_unet", "dit", "iddpm_unet", "diffusers"} == set(families())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"drop_out": 0.1}, "key of ddpm_unet: 'drop_out' is unknown; did you mean 'dropout'"),
        ({"in_channels": ...}, "configuration of ddpm_unet: in_channels: .*required"),
        ({"base_channels": "wide"}, "ddpm_unet: base_channels: .*integer"),
        ({"channel_multipliers": []}, "ddpm_unet: channel_multipliers: .*at least 1"),
        ({"norm_groups": 3}, "base_channels=8 is not a multiple of norm_groups=3"),
        ({"attention_levels": [1]}, r"attention_levels=\[1\]: .* levels 0 to 0 only"),
    ],
)
def test_mistakes_in_a_configuration_are_named(change: dict[str, object], message: str) -> None:
    with pytest.raises(OcmError, match=message):
        build(
            "ddpm_unet", {key: value for key, value in (TINY | change).items() if value is not ...}
        )


def test_the_package_imports_no_family() -> None:
    """Which stages an edit makes stale is read off these imports."""
    shared = ("__init__", "_layers", "_unet", "config", "keys")
    folder = Path(ocm_core.networks.__file__).parent
    for name in shared:
        tree = ast.parse((folder / f"{name}.py").read_text())
        imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        assert not imported & {f"ocm_core.networks.{family}" for family in families()}


MAKERS: dict[str, Callable[[], ScoreNetwork]] = {
    "ddpm_unet": lambda: build("ddpm_unet", TINY),
    "iddpm_unet": lambda: build("iddpm_unet", TINY),
    "dit": golden("dit_learn_sigma").fresh,
    "mlp": lambda: MlpScore(schedule.linear(1000), 2.0, 8, 2, "gaussian"),
    "UNet2DModel": lambda: build("diffusers", {**PLAIN, "_class_name": "UNet2DModel"}),
    "DiT": lambda: build("diffusers", {**DIT, "_class_name": "DiTTransformer2DModel"}),
    "text": lambda: build("diffusers", {**TEXT, "_class_name": "UNet2DConditionModel"}),
}


@pytest.mark.parametrize("family", MAKERS)
def test_loading_draws_nothing_and_gives_the_saved_network(family: str, tmp_path: Path) -> None:
    saved, file = MAKERS[family](), tmp_path / "score.safetensors"
    save_file({name: tensor.clone() for name, tensor in saved.state_dict().items()}, file)
    torch.manual_seed(0)
    before = torch.get_rng_state()
    network = load(MAKERS[family], file)
    assert torch.equal(torch.get_rng_state(), before)
    named = {**dict(saved.named_parameters()), **dict(saved.named_buffers())}
    loaded = {**dict(network.named_parameters()), **dict(network.named_buffers())}
    assert loaded.keys() == named.keys()
    for name, tensor in named.items():
        assert torch.equal(loaded[name], tensor) and loaded[name].dtype == tensor.dtype
        assert loaded[name].requires_grad == tensor.requires_grad
        assert not loaded[name].is_meta
    assert all(parameter.data_ptr() % 64 == 0 for parameter in network.parameters())
    assert not torch.nn.Linear(1, 1).weight.is_meta


@pytest.mark.parametrize("change", ["missing", "surplus", "misshapen", "truncated"])
def test_a_file_of_another_network_is_refused(change: str, tmp_path: Path) -> None:
    state, file = build("ddpm_unet", TINY).state_dict(), tmp_path / "score.safetensors"
    if change == "missing":
        del state["stem.weight"]
    elif change == "surplus":
        state["other"] = torch.zeros(1)
    elif change == "misshapen":
        state["stem.weight"] = torch.zeros(1)
    save_file(state, file)
    if change == "truncated":
        file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(OcmError, match=r"score\.safetensors: expected weights of DdpmUNet"):
        load(MAKERS["ddpm_unet"], file)
