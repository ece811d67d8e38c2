"""The published network families, written afresh, and the covariance heads that fit them.

`build` imports a family only when it is asked for: which files a pipeline stage depends on is read
off the import statements, and an edit in one family must not make the others' results stale.
"""

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from ocm_core.errors import OcmError, unknown
from ocm_core.networks.interface import ScoreNetwork

FAMILIES = ("ddpm_unet", "dit", "iddpm_unet")


def build(family: str, config: Mapping[str, Any]) -> ScoreNetwork:
    if family not in FAMILIES:
        raise OcmError(f"network family: {unknown(family, FAMILIES)}")
    network: ScoreNetwork = import_module(f"ocm_core.networks.{family}").build(config)
    return network
