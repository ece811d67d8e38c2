"""Tiny models of the published families, on disk in the published layouts."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from ocm_core.checkpoints.registry import Checkpoint, CheckpointSource, checkpoint_named
from ocm_core.networks.keys import export_published

StateDict = dict[str, Tensor]

UNET = {
    **{"base_channels": 32, "channel_multipliers": [1, 2]},
    **{"blocks_per_level": 1, "attention_levels": [1]},
}
TRANSFORMER = {"image_size": 8, "width": 16, "depth": 1, "attention_heads": 2, "num_classes": 3}


def tiny(name: str) -> Checkpoint:
    """The same entry, a few channels wide; digests of the real file do not apply."""
    entry = checkpoint_named(name)
    config = {**entry.config, **(TRANSFORMER if entry.family == "dit" else UNET)}
    sources = tuple(replace(source, md5=None) for source in entry.sources)
    return replace(entry, config=config, sources=sources)


def weights(checkpoint: Checkpoint, seed: int = 0) -> StateDict:
    generator = torch.Generator().manual_seed(seed)
    shapes = {key: tensor.shape for key, tensor in export_published(checkpoint.network()).items()}
    return {key: torch.randn(shape, generator=generator) for key, shape in shapes.items()}


def _other(state: StateDict) -> StateDict:
    return {key: tensor + 1 for key, tensor in state.items()}


WRITERS: dict[str, Callable[[StateDict], object]] = {
    "flat": lambda state: state,
    "ema_models_states": lambda state: {
        "it": 7,
        "best_val_loss": None,
        "models_states": {"eps_model": _other(state)},
        "optimizers_states": {"all": {"state": {}, "param_groups": [{"lr": 1e-4}]}},
        "ema_models_states": {"eps_model": state},
    },
    "list_with_ema_last": lambda state: [
        {f"module.{key}": tensor for key, tensor in _other(state).items()},
        {"state": {0: {"step": 3}}, "param_groups": [{"lr": 2e-4}]},
        1,
        3,
        state,
    ],
}


def write(source: CheckpointSource, state: StateDict, path: Path, legacy: bool = False) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save(WRITERS[source.layout](state), path, _use_new_zipfile_serialization=not legacy)
    return path
