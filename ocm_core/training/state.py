"""The state of a training run, saved as one file that proves itself, and its curve of losses."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.optim import AdamW

from ocm_core.errors import OcmError
from ocm_core.io.atomic import write_text
from ocm_core.io.state_file import load_state, save_state
from ocm_core.schema.experiment import OptimiserParams

_FILE = "training.safetensors"
CURVE_FILE = "curve.json"
_FACTS = ("iteration", "smoothed", "lowest", "curve")

Curve = list[dict[str, float]]


@dataclass
class TrainingState:
    """Everything that an interrupted run resumes from."""

    networks: Mapping[str, nn.Module]
    parameters: Mapping[str, nn.Parameter]  # the trainable ones, under the name of their network
    optimiser: AdamW
    average: dict[str, Tensor]
    iteration: int = 0
    smoothed: dict[str, float] = field(default_factory=dict)
    lowest: dict[str, float] = field(default_factory=dict)
    curve: Curve = field(default_factory=list)

    @classmethod
    def start(cls, networks: Mapping[str, nn.Module], settings: OptimiserParams) -> TrainingState:
        parameters = {
            f"{label}.{name}": parameter
            for label, network in networks.items()
            for name, parameter in network.named_parameters()
            if parameter.requires_grad
        }
        rate, decay = settings.learning_rate, settings.weight_decay
        optimiser = AdamW(parameters.values(), lr=rate, weight_decay=decay)
        average = {name: parameter.detach().clone() for name, parameter in parameters.items()}
        return cls(networks, parameters, optimiser, average)

    @torch.no_grad()
    def update_average(self, rate: float) -> None:
        """ema ← rate · ema + (1 - rate) · weights."""
        for name, parameter in self.parameters.items():
            self.average[name].lerp_(parameter, 1.0 - rate)

    @torch.no_grad()
    def use_average(self) -> None:
        """Put the moving average in the place of the weights."""
        for name, parameter in self.parameters.items():
            parameter.copy_(self.average[name])

    def average_of(self, name: str) -> dict[str, Tensor]:
        """Return the moving average of one network."""
        found, prefix = self.average.items(), f"{name}."
        return {k.removeprefix(prefix): v for k, v in found if k.startswith(prefix)}

    def save(self, folder: Path) -> None:
        save_state(state_file(folder), self._tensors(), {f: getattr(self, f) for f in _FACTS})

    @torch.no_grad()
    def resume(self, folder: Path) -> None:
        """Load the state from a folder, if there is one."""
        found = load_state(state_file(folder))
        if found is None:
            return
        for parameter in self.parameters.values():
            moments = {key: torch.zeros_like(parameter) for key in ("exp_avg", "exp_avg_sq")}
            self.optimiser.state[parameter] = {"step": torch.tensor(0.0), **moments}
        expected, saved = self._tensors(), found.tensors.items()
        if {k: v.shape for k, v in expected.items()} != {k: v.shape for k, v in saved}:
            raise OcmError(
                f"{state_file(folder)}: holds other networks than the ones to be trained; "
                "delete it to start anew"
            )
        for name, tensor in expected.items():
            tensor.copy_(found.tensors[name])
        for name in _FACTS:
            setattr(self, name, found.facts[name])

    def _tensors(self) -> dict[str, Tensor]:
        """Everything that training changes, by name; the tensors themselves, not copies."""
        found = {f"average/{name}": tensor for name, tensor in self.average.items()}
        for name, parameter in self.parameters.items():
            found[f"weights/{name}"] = parameter.detach()
            for key, value in self.optimiser.state[parameter].items():
                found[f"{key}/{name}"] = value
        return found


def state_file(folder: Path) -> Path:
    """Return where a state is saved."""
    return folder / _FILE


def saved_at(folder: Path) -> int | None:
    """The iteration of the checkpoint in `folder`, if there is one."""
    found = load_state(state_file(folder))
    return None if found is None else int(found.facts["iteration"])


def save_curve(folder: Path, curve: Sequence[dict[str, float]]) -> None:
    """Write the loss curve."""
    write_text(folder / CURVE_FILE, json.dumps(curve, indent=1) + "\n")


def joined_curves(labels: Iterable[str], *curves: Curve) -> Curve:
    """Return the losses of some networks in one curve."""
    rows = defaultdict[float, dict[str, float]](dict)
    for point in chain(*curves):
        rows[point["iteration"]] |= point
    chosen = [{k: row[k] for k in ("iteration", *labels) if k in row} for row in rows.values()]
    return [row for row in chosen if len(row) > 1]


def load_curve(folder: Path) -> Curve:
    """Read the loss curve."""
    curve: Curve = json.loads((folder / CURVE_FILE).read_text())
    return curve
