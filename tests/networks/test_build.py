import ast
from pathlib import Path

import pytest

import ocm_core.networks
from ocm_core.errors import OcmError
from ocm_core.networks import build, families

TINY = {
    "in_channels": 1,
    "base_channels": 8,
    "norm_groups": 4,
    "channel_multipliers": [1],
    "blocks_per_level": 1,
    "attention_levels": [],
}


def test_unknown_family_names_the_nearest() -> None:
    with pytest.raises(OcmError, match=r"'ddpm_unett' is unknown; did you mean 'ddpm_unet'\?"):
        build("ddpm_unett", {})


def test_a_file_without_a_family_is_none() -> None:
    assert {"ddpm_unet", "dit", "iddpm_unet"} <= set(families())
    with pytest.raises(OcmError, match="'mlp' is unknown"):
        build("mlp", {})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"drop_out": 0.1}, "key of ddpm_unet: 'drop_out' is unknown; did you mean 'dropout'"),
        ({"base_channels": "wide"}, "ddpm_unet: base_channels: .*integer"),
        ({"channel_multipliers": []}, "ddpm_unet: channel_multipliers: .*at least 1"),
        ({"norm_groups": 3}, "base_channels=8 is not a multiple of norm_groups=3"),
        ({"attention_levels": [1]}, r"attention_levels=\[1\]: .* levels 0 to 0 only"),
    ],
)
def test_mistakes_in_a_configuration_are_named(change: dict[str, object], message: str) -> None:
    with pytest.raises(OcmError, match=message):
        build("ddpm_unet", TINY | change)


def test_missing_key_is_named() -> None:
    with pytest.raises(OcmError, match=r"configuration of iddpm_unet: in_channels: .*required"):
        build("iddpm_unet", {key: TINY[key] for key in TINY if key != "in_channels"})


def test_the_package_imports_no_family() -> None:
    """Which stages an edit makes stale is read off these imports."""
    shared = ("__init__", "_layers", "_unet", "config", "keys")
    folder = Path(ocm_core.networks.__file__).parent
    for name in shared:
        tree = ast.parse((folder / f"{name}.py").read_text())
        imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        assert not imported & {f"ocm_core.networks.{family}" for family in families()}
