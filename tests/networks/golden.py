"""Golden networks: tiny published-style weights with the outputs of the reference code."""

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from ocm_core.diffusion.score_network import ScoreNetwork, TrunkFeatures
from ocm_core.networks import build
from ocm_core.networks.keys import load_published, published_keys

ROOT = Path(__file__).parents[1] / "goldens"
KEPT = ("in_channels", "dropout", "patch_size", "depth", "mlp_ratio", "num_classes")
RENAMED = {
    "ch": "base_channels",
    "model_channels": "base_channels",
    "ch_mult": "channel_multipliers",
    "channel_mult": "channel_multipliers",
    "num_res_blocks": "blocks_per_level",
    "num_heads": "attention_heads",
    "input_size": "image_size",
    "hidden_size": "width",
    "class_dropout_prob": "label_dropout",
    "learn_sigma": "learns_variance",
}


def our_config(published: dict[str, Any]) -> dict[str, Any]:
    """The constructor arguments of the published code, under our names."""
    names = {name: name for name in KEPT} | RENAMED
    config = {names[name]: value for name, value in published.items() if name in names}
    if "channel_multipliers" in config:
        side, sides = published.get("resolution", 0), published.get("attn_resolutions", ())
        factors = published.get("attention_resolutions", ())
        levels = range(len(config["channel_multipliers"]))
        config["attention_levels"] = [i for i in levels if side >> i in sides or 2**i in factors]
        outputs = published.get("out_ch", published.get("out_channels"))
        config["learns_variance"] = outputs == 2 * published["in_channels"]
    return config


@dataclass(frozen=True)
class Golden:
    meta: dict[str, Any]
    arrays: dict[str, Tensor]

    @property
    def inputs(self) -> tuple[Tensor, Tensor, Tensor | None]:
        return self.arrays["x"], self.arrays["t"], self.arrays.get("y")

    @property
    def output(self) -> Tensor:
        names = ("eps", "learned_variance")
        return torch.cat([self.arrays[name] for name in names if name in self.arrays], dim=1)

    def group(self, prefix: str) -> dict[str, Tensor]:
        names = [name for name in self.arrays if name.startswith(prefix)]
        return {name.removeprefix(prefix): self.arrays[name] for name in names}

    def fresh(self) -> ScoreNetwork:
        return build(self.meta["family"], our_config(self.meta["config"]))

    def load(self) -> tuple[ScoreNetwork, nn.Module | None]:
        network, head, weights = self.fresh(), None, self.group("weights/")
        # No DiT head was ever published, so its golden keys come without our prefix.
        weights |= {f"final_layer2.{key}": w for key, w in self.group("head_weights/").items()}
        if "head" in self.arrays:
            head = network.make_head(self.meta.get("head_mode", network.head_kinds[0])).eval()
            load_published(head, {key: weights.pop(key) for key in published_keys(head).values()})
        load_published(network, weights)
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
