"""Covariance heads as a component of a diffusers pipeline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from diffusers.configuration_utils import ConfigMixin, register_to_config
from diffusers.models.modeling_utils import ModelMixin
from torch import Tensor, nn

from ocm_core.checkpoints.head_file import kind_of, weights_digest
from ocm_core.covariance.learned import LINKS, CovarianceHead
from ocm_core.diffusion.score_network import ScoreNetwork, TrunkFeatures
from ocm_core.errors import OcmError
from ocm_core.networks.diffusers import build

_NAMES = {link: name for name, link in LINKS.items()}


class CovarianceHeads(ModelMixin, ConfigMixin):  # type: ignore[misc]
    """`heads` says of each label the kind, the link and the length of the baseline's table.

    `base` is the configuration of the model whose features they read, `model` the digest of its
    weights.
    """

    @register_to_config  # type: ignore[untyped-decorator]
    def __init__(self, base: dict[str, Any], heads: dict[str, dict[str, Any]], model: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        with torch.device("meta"):
            network = build(base)
        made = {label: _new(network, **form) for label, form in heads.items()}
        self.by_label = nn.ModuleDict(made)

    def forward(self, features: TrunkFeatures, label: str) -> Tensor:
        dtype = next(self.parameters()).dtype
        output: Tensor = self.by_label[label](TrunkFeatures(*(part.to(dtype) for part in features)))
        return output

    def attached(self) -> dict[str, Attached]:
        """The heads as a denoiser has them, called by way of this component."""
        return {label: Attached(self, label) for label in self.by_label}

    def check(self, network: ScoreNetwork) -> None:
        """Refuse another model than the one that they were trained on."""
        expected, found = self.config["model"], weights_digest(network)
        if expected != found:
            raise OcmError(
                f"heads: they were trained on the weights {expected[:16]}…, and model/ has "
                f"{found[:16]}…: another model; open the folder as it was exported"
            )


@dataclass(frozen=True)
class Attached:
    """One head of a component, as a denoiser has it."""

    heads: CovarianceHeads
    label: str

    @property
    def baseline(self) -> Tensor | None:
        return self._head.baseline

    @property
    def link(self) -> Any:
        return self._head.link

    @property
    def _head(self) -> CovarianceHead:
        head = self.heads.by_label[self.label]
        assert isinstance(head, CovarianceHead)
        return head

    def __call__(self, features: TrunkFeatures) -> Tensor:
        output: Tensor = self.heads(features, self.label)
        return output


def component_of(
    network: ScoreNetwork, base: Mapping[str, Any], heads: Mapping[str, CovarianceHead]
) -> CovarianceHeads:
    """Trained heads copied into a component; `base` is the configuration of the network's model."""
    forms = {
        label: {
            "kind": kind_of(network, head.net.state_dict()),
            "link": _NAMES[head.link],
            "table": None if head.baseline is None else len(head.baseline),
        }
        for label, head in heads.items()
    }
    component: CovarianceHeads = CovarianceHeads(
        base=dict(base), heads=forms, model=weights_digest(network)
    )
    for label, head in heads.items():
        component.by_label[label].load_state_dict(head.state_dict())
    component.eval().requires_grad_(False)
    return component


def _new(network: ScoreNetwork, kind: str, link: str, table: int | None) -> CovarianceHead:
    baseline = None if table is None else torch.ones(table)
    return CovarianceHead(network.make_head(kind), baseline, link)
