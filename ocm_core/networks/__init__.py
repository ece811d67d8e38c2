"""The published network families, written afresh, and the covariance heads that fit them.

`build` imports a family only when it is asked for: which files a pipeline stage depends on is read
off the import statements, and an edit in one family, or a new one, must not make the others'
results stale.
"""

from collections.abc import Mapping
from dataclasses import asdict
from importlib import import_module
from importlib.util import find_spec
from pkgutil import iter_modules
from types import ModuleType
from typing import Any

from ocm_core.diffusion.score_network import ScoreNetwork
from ocm_core.errors import OcmError, unknown
from ocm_core.networks.config import read_config


def build(family: str, config: Mapping[str, Any]) -> ScoreNetwork:
    network: ScoreNetwork = _module(family).build(config)
    return network


def configuration(family: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """Checked by the family, with its defaults filled in, as plain values."""
    checked = asdict(read_config(_module(family).Config, config, family))
    return {key: list(v) if isinstance(v, tuple) else v for key, v in checked.items()}


def families() -> list[str]:
    """The files of this folder that say so; all are imported to find out."""
    modules = (import_module(f"{__name__}.{found.name}") for found in iter_modules(__path__))
    return [module.FAMILY for module in modules if hasattr(module, "FAMILY")]


def _module(family: str) -> ModuleType:
    name = f"{__name__}.{family}"
    module = import_module(name) if find_spec(name) else None
    if module is None or not hasattr(module, "FAMILY"):
        raise OcmError(f"network family: {unknown(family, families())}")
    return module
