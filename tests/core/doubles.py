"""Small networks whose Jacobians are known, and noise that is known, for tests around them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any, ClassVar

import torch
from torch import nn

from ocm_core.diffusion.kernels.ddim import Ddim
from ocm_core.diffusion.kernels.ddpm import Ddpm
from ocm_core.diffusion.schedule import Schedule
from ocm_core.diffusion.score_network import ScoreNetwork, TrunkFeatures
from ocm_core.sampling.recipe import Recipe, Sampled


def ancestral(
    model: Any, method: Any, timesteps: Any, noise: Any, *, kernel: Any, **options: Any
) -> Sampled:
    """Draw by a recipe; `label` and `watch` are those of `Recipe.draw`."""
    how = {key: options.pop(key) for key in ("label", "watch") if key in options}
    return Recipe(timesteps, method, kernel, **options).draw(model, noise, **how)


ddpm = partial(ancestral, kernel=Ddpm())
ddim = partial(ancestral, kernel=Ddim())


@dataclass(frozen=True)
class EpsModel:
    """A model that is a function of x_t and t."""

    eps: Callable[[torch.Tensor, float], torch.Tensor]
    schedule: Schedule

    def predict(self, x: torch.Tensor, t: float, label: torch.Tensor | None = None) -> Any:
        return SimpleNamespace(eps=self.eps(x, t))


def _generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


class LinearHead(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(0.3, dtype=torch.float64))

    def forward(self, features: TrunkFeatures) -> torch.Tensor:
        return self.weight * features.hidden.sin()


class QuadraticNetwork(ScoreNetwork):
    """ε̂(x) = A x + (B x)², in float64."""

    head_kinds: ClassVar[tuple[str, ...]] = ("linear",)
    out_channels_per_input = 1

    def __init__(self, dimension: int, seed: int) -> None:
        super().__init__()
        draw = _generator(seed)
        size = (2, dimension, dimension)
        self.weights = nn.Parameter(torch.randn(size, generator=draw, dtype=torch.float64))

    def features(self, x, time, label=None):
        return TrunkFeatures(x, time)

    def readout(self, features):
        linear, square = self.weights
        return features.hidden @ linear.T + (features.hidden @ square.T) ** 2

    def _build_head(self, kind: str, **sizes: int) -> nn.Module:
        return LinearHead()


class LabelledNetwork(ScoreNetwork):
    """A convolution and a tanh whose offset depends on the class; 4 channels, 3 classes + null."""

    head_kinds: ClassVar[tuple[str, ...]] = ("linear",)
    out_channels_per_input = 1
    null_label = 3

    def __init__(self, seed: int) -> None:
        super().__init__()
        draw = _generator(seed)
        self.kernel = nn.Parameter(torch.randn(4, 4, 3, 3, generator=draw, dtype=torch.float64))
        self.classes = nn.Parameter(torch.randn(4, 4, generator=draw, dtype=torch.float64))

    def features(self, x, time, label=None):
        offset = self.classes[label][:, :, None, None]
        mixed = nn.functional.conv2d(x, self.kernel, padding=1)
        return TrunkFeatures(torch.tanh(mixed + offset) + 0.1 * offset * x, self.classes[label])

    def readout(self, features):
        return features.hidden

    def _build_head(self, kind: str, **sizes: int) -> nn.Module:
        return LinearHead()


@dataclass
class Replay:
    """Noise given beforehand, in the order of use."""

    normals: Sequence[torch.Tensor]
    probes: Sequence[torch.Tensor] = ()
    _normal: int = 0
    _probe: int = 0

    def normal(self) -> torch.Tensor:
        self._normal += 1
        return self._take(self.normals, self._normal, "normal")

    def signs(self) -> torch.Tensor:
        self._probe += 1
        return self._take(self.probes, self._probe, "probe")

    @staticmethod
    def _take(values: Sequence[torch.Tensor], count: int, what: str) -> torch.Tensor:
        if count > len(values):
            raise AssertionError(
                f"replayed noise has {len(values)} {what} draws; number {count} asked"
            )
        return values[count - 1]


class WaveNetwork(ScoreNetwork):
    """ε̂(x, t) = tanh(x) + ½ sin(x + t / 200): smooth in x and t, any shape; counts its passes."""

    head_kinds: ClassVar[tuple[str, ...]] = ()
    out_channels_per_input = 1

    def __init__(self) -> None:
        super().__init__()
        self.times: list[float] = []

    def features(self, x, time, label=None):
        self.times.append(float(time[0]))
        return TrunkFeatures(x, time)

    def readout(self, features):
        x, time = features
        phase = time.view(-1, *(1,) * (x.ndim - 1)).to(x.dtype) / 200
        return x.tanh() + 0.5 * (x + phase).sin()

    def _build_head(self, kind: str, **sizes: int) -> nn.Module:
        raise NotImplementedError
