"""Building and loading networks, their published keys, and recomputing their blocks."""

import ast
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file
from torch import Tensor, nn

import ocm_core.networks
from ocm_core.diffusion import schedule
from ocm_core.diffusion.score_network import ScoreNetwork
from ocm_core.errors import OcmError
from ocm_core.networks import blocks, build, enable_gradient_checkpointing, families, load
from ocm_core.networks.keys import load_published, published_keys
from ocm_core.networks.mlp import MlpScore
from ocm_core.networks.pairs import PairScore

from .diffusers_cases import DIT, PLAIN, TEXT
from .golden import Golden, golden

TINY = {
    **{"in_channels": 1, "base_channels": 8, "norm_groups": 4, "channel_multipliers": [1]},
    **{"blocks_per_level": 1, "attention_levels": []},
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
    config = {key: value for key, value in (TINY | change).items() if value is not ...}
    with pytest.raises(OcmError, match=message):
        build("ddpm_unet", config)


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
    "mlp": lambda: MlpScore(schedule.linear(1000), 2.0, 8, 2),
    "pairs": lambda: PairScore(schedule.linear(1000), 2.0, 8, 2, 6),
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
    elif change != "truncated":
        state["other" if change == "surplus" else "stem.weight"] = torch.zeros(1)
    save_file(state, file)
    if change == "truncated":
        file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(OcmError, match=r"score\.safetensors: expected weights of DdpmUNet"):
        load(MAKERS["ddpm_unet"], file)


@settings(deadline=None, max_examples=15)
@given(
    family=st.sampled_from(["ddpm_unet", "iddpm_unet"]),
    multipliers=st.lists(st.integers(1, 3), min_size=1, max_size=4),
    blocks=st.integers(1, 3),
    data=st.data(),
)
def test_published_names_of_any_unet_are_distinct(
    family: str, multipliers: list[int], blocks: int, data: st.DataObject
) -> None:
    levels = sorted(data.draw(st.sets(st.integers(0, len(multipliers) - 1))))
    changes = {"channel_multipliers": multipliers, "blocks_per_level": blocks}
    with torch.device("meta"):
        names = published_keys(build(family, TINY | changes | {"attention_levels": levels}))
    assert len(set(names.values())) == len(names)
    ours = ("encoder", "decoder", "stages", "residual", "resample", "stem")
    assert not [name for name in names.values() if set(name.split(".")) & set(ours)]


def test_keys_that_do_not_fit_are_refused_and_nothing_changes() -> None:
    case = golden("ddpm_unet_base")
    network, state = case.fresh(), case.group("weights/")
    before = {key: tensor.clone() for key, tensor in network.state_dict().items()}
    del state["mid.attn_1.q.weight"]
    state |= {f"out2.{i}.weight": torch.zeros(1) for i in range(5)}
    state["conv_in.weight"] = torch.zeros(32, 1, 3, 3)
    message = (
        r"DdpmUNet: missing: mid\.attn_1\.q\.weight; unexpected: out2\.0\.weight, .* and 2 more;"
        r" misshapen: conv_in\.weight \(32, 1, 3, 3\) instead of \(32, 3, 3, 3\);"
    )
    with pytest.raises(OcmError, match=message):
        load_published(network, state)
    assert all(torch.equal(before[key], tensor) for key, tensor in network.state_dict().items())


@pytest.fixture(params=("iddpm_unet_base", "ddpm_unet_base", "dit_learn_sigma"))
def case(request: pytest.FixtureRequest) -> Golden:
    return golden(request.param)


def products(network: ScoreNetwork, case: Golden, count: int = 1) -> tuple[Tensor, ...]:
    """The output, and Jᵀ v `count` times from one graph."""
    x, time, label = case.inputs
    x = x.clone().requires_grad_(True)
    output = network.requires_grad_(False)(x, time, label)
    v = torch.linspace(-1, 1, output.numel()).view_as(output)
    found = (torch.autograd.grad(output, x, v, retain_graph=True)[0] for _ in range(count))
    return output, *found


def test_same_bits_for_every_product(case: Golden) -> None:
    network = case.network()
    output, vjp = products(network, case)
    enable_gradient_checkpointing(network)
    assert all(map(torch.equal, products(network, case, 2), (output, vjp, vjp)))


def test_blocks_run_again_for_the_gradient_only_and_are_not_nested(case: Golden) -> None:
    network, runs = case.network(), []
    first, *others = blocks(network)
    parts = {
        id(part) for block in (first, *others) for part in block.modules() if part is not block
    }
    assert not {id(block) for block in (first, *others)} & parts
    next(first.children()).register_forward_pre_hook(lambda *_: runs.append(1))
    enable_gradient_checkpointing(network)
    case.features(network)
    assert len(runs) == 1
    products(network, case)
    assert len(runs) == 3
    with pytest.raises(OcmError, match="Sequential has no blocks"):
        enable_gradient_checkpointing(nn.Sequential(nn.Linear(2, 2)))
