"""The published network families, written afresh, and the covariance heads that fit them.

`build` imports a family only when it is asked for: which files a pipeline stage depends on is read
off the import statements, and an edit in one family must not make the others' results stale.
"""

from collections.abc import Mapping
from dataclasses import asdict
from importlib import import_module
from types import ModuleType
from typing import Any

from ocm_core.errors import OcmError, unknown
from ocm_core.networks.config import read_config
from ocm_core.networks.interface import ScoreNetwork

FAMILIES = ("ddpm_unet", "dit", "iddpm_unet")


def build(family: str, config: Mapping[str, Any]) -> ScoreNetwork:
    network: ScoreNetwork = _module(family).build(config)
    return network


def configuration(family: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """Checked by the family, with its defaults filled in, as plain values."""
    checked = asdict(read_config(_module(family).Config, config, family))
    return {key: list(v) if isinstance(v, tuple) else v for key, v in checked.items()}


def _module(family: str) -> ModuleType:
    if family not in FAMILIES:
        raise OcmError(f"network family: {unknown(family, FAMILIES)}")
    return import_module(f"ocm_core.networks.{family}")
