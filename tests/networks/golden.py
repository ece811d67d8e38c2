"""Golden networks: tiny published-style weights with the outputs of the reference code."""

import json
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from ocm_core.diffusion.score_network import ScoreNetwork, TrunkFeatures
from ocm_core.networks import build
from ocm_core.networks.keys import load_published

ROOT = Path(__file__).parents[1] / "goldens"
CHECKPOINTS = ("cifar10_ls", "cifar10_cs", "celeba64", "imagenet64", "lsun_bedroom", "imagenet256")


def network_from_published(family: str, arguments: dict[str, Any]) -> ScoreNetwork:
    config = import_module(f"ocm_core.networks.{family}").Config.from_published(arguments)
    return build(family, vars(config))


@dataclass(frozen=True)
class Golden:
    meta: dict[str, Any]
    arrays: dict[str, Tensor]

    @property
    def inputs(self) -> tuple[Tensor, Tensor, Tensor | None]:
        return self.arrays["x"], self.arrays["t"], self.arrays.get("y")

    def group(self, prefix: str) -> dict[str, Tensor]:
        names = [name for name in self.arrays if name.startswith(prefix)]
        return {name.removeprefix(prefix): self.arrays[name] for name in names}

    def fresh(self) -> ScoreNetwork:
        return network_from_published(self.meta["family"], self.meta["config"])

    def load(self) -> tuple[ScoreNetwork, nn.Module | None]:
        network, head = self.fresh(), None
        if "head" in self.arrays:
            kind = self.meta.get("head_mode", network.head_kinds[0])
            head = network.make_head(kind).eval()
        # No DiT head was ever published, so its golden keys come without our prefix.
        separate = {f"final_layer2.{key}": w for key, w in self.group("head_weights/").items()}
        load_published(network, self.group("weights/") | separate, head)
        return network.eval(), head

    def network(self) -> ScoreNetwork:
        return self.load()[0]

    def features(self, network: ScoreNetwork) -> TrunkFeatures:
        with torch.no_grad():
            return network.features(*self.inputs)


@cache
def golden(name: str) -> Golden:
    path = ROOT / "networks" / name
    meta = json.loads(path.with_suffix(".json").read_text())
    return Golden(meta, load_file(path.with_suffix(".safetensors")))


@cache
def checkpoint(name: str) -> dict[str, Any]:
    described: dict[str, Any] = json.loads((ROOT / "checkpoints" / f"{name}.json").read_text())
    return described
