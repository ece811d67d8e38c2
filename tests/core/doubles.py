"""Small networks whose Jacobians are known, noise that is known, and data of a known score."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from types import SimpleNamespace
from typing import Any, ClassVar

import torch
from torch import nn

from ocm_core.diffusion import basis as bases
from ocm_core.diffusion.basis import Basis, Spectrum
from ocm_core.diffusion.denoiser import Denoiser
from ocm_core.diffusion.gaussian import Covariance
from ocm_core.diffusion.kernels.ddim import Ddim
from ocm_core.diffusion.kernels.ddpm import Ddpm
from ocm_core.diffusion.mixture import Mixture
from ocm_core.diffusion.schedule import Schedule
from ocm_core.diffusion.score_network import ScoreNetwork, TrunkFeatures
from ocm_core.networks.mixture import MixtureScore
from ocm_core.sampling.recipe import Recipe, Sampled
from ocm_core.schema.experiment import OptimiserParams

SETTINGS = OptimiserParams.model_validate(
    {"iterations": 12, "batch_size": 16, "accumulate": 1, "learning_rate": 1e-3, "decay": "cosine"}
    | {"weight_decay": 0.01, "ema": 0.9, "precision": "float32", "seed": 7, "checkpoint_every": 5}
)
PAIR = Mixture(torch.tensor([[-1.0, 0.5], [1.0, -0.5]], dtype=torch.float64), 0.3)


def changed(**values: Any) -> OptimiserParams:
    return SETTINGS.model_copy(update=values)


def killed(at: int) -> Callable[[Iterable[int]], Iterator[int]]:
    """Return a `progress` that is interrupted before an iteration."""

    def progress(iterations: Iterable[int]) -> Iterator[int]:
        yield from (i for i in iterations if i < at)
        raise KeyboardInterrupt

    return progress


def spectra(schedule: Schedule, *shape: int, device: Any = "cpu") -> dict[str, Spectrum]:
    """Return the spectrum of a Gaussian whose powers fall with the index of the vector."""
    powers = torch.logspace(0, -0.5, prod(shape), dtype=torch.float64).view(shape)
    times = tuple(range(1, schedule.steps + 1))
    marginals = (schedule.marginal(t) for t in times)
    rho = torch.stack([b * powers / (alpha_bar * powers + b) for alpha_bar, b in marginals])
    basis = bases.build("dct", torch.zeros(1, *shape))
    return {"dct": Spectrum(basis, times, rho.log()).to(device)}


def exact(data: Mixture, schedule: Schedule, **more: Any) -> Denoiser:
    return Denoiser(MixtureScore(data, schedule), schedule, **more)


def ancestral(
    model: Any, method: Any, timesteps: Any, noise: Any, *, kernel: Any, **options: Any
) -> Sampled:
    """Draw by a recipe; `label` and `watch` are those of `Recipe.draw`."""
    how = {key: options.pop(key) for key in ("label", "watch") if key in options}
    return Recipe(timesteps, method, kernel, **options).draw(model, noise, **how)


ddpm = partial(ancestral, kernel=Ddpm())
ddim = partial(ancestral, kernel=Ddim())


def root_of(covariance: Covariance, like: torch.Tensor) -> torch.Tensor:
    """The matrix √Σ of each sample, by what it does to unit vectors."""
    unit = torch.eye(like[0].numel(), dtype=like.dtype)
    columns = [covariance.scale(e.view_as(like[0]).expand_as(like)).flatten(1) for e in unit]
    return torch.stack(columns, dim=2)


@dataclass(frozen=True)
class EpsModel:
    """A model that is a function of x_t and t."""

    eps: Callable[[torch.Tensor, float], torch.Tensor]
    schedule: Schedule

    def predict(self, x: torch.Tensor, t: float, label: torch.Tensor | None = None) -> Any:
        return SimpleNamespace(eps=self.eps(x, t))


class Given(nn.Module):
    """A head that says the same whatever it reads."""

    def __init__(self, output: torch.Tensor) -> None:
        super().__init__()
        self.output = output

    def forward(self, features: object, t: object = None) -> torch.Tensor:
        return self.output


class LinearHead(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(0.3, dtype=torch.float64))

    def forward(self, features: TrunkFeatures) -> torch.Tensor:
        return self.weight * features.hidden.sin()


class KnownNetwork(ScoreNetwork):
    """Reads x and the time as they are; what it says of them is that of a subclass."""

    head_kinds: ClassVar[tuple[str, ...]] = ("linear",)
    out_channels_per_input = 1

    def features(self, x, time, label=None):
        return TrunkFeatures(x, time)

    def _build_head(self, kind: str, **sizes: int) -> nn.Module:
        return LinearHead()


class SpectralNetwork(KnownNetwork):
    """E[ε | x_t] of a Gaussian with these powers in a basis, by the timestep as its time."""

    def __init__(self, schedule: Schedule, basis: Basis, powers: torch.Tensor) -> None:
        super().__init__()
        self.schedule, self.basis, self.powers = schedule, basis, powers

    def readout(self, features):
        x, time = features
        alpha_bar, b = self.schedule.marginal_at(time.long(), x)
        shrunk = self.basis.coefficients(x) * b.sqrt() / (alpha_bar * self.powers.to(x) + b)
        return self.basis.combine(shrunk)


class SmallNetwork(KnownNetwork):
    """Random weights in float64."""

    def __init__(self, seed: int = 0, **sizes: tuple[int, ...]) -> None:
        super().__init__()
        draw = torch.Generator().manual_seed(seed)
        for name, size in sizes.items():
            weights = torch.randn(size, generator=draw, dtype=torch.float64)
            self.register_parameter(name, nn.Parameter(weights))

    def readout(self, features):
        return features.hidden


class QuadraticNetwork(SmallNetwork):
    """ε̂(x) = A x + (B x)²."""

    def __init__(self, dimension: int, seed: int) -> None:
        super().__init__(seed, weights=(2, dimension, dimension))

    def readout(self, features):
        linear, square = self.weights
        return features.hidden @ linear.T + (features.hidden @ square.T) ** 2


class LabelledNetwork(SmallNetwork):
    """A convolution and a tanh whose offset depends on the class; 4 channels, 3 classes + null."""

    null_label = 3

    def __init__(self, seed: int) -> None:
        super().__init__(seed, kernel=(4, 4, 3, 3), classes=(4, 4))

    def features(self, x, time, label=None):
        offset = self.classes[label][:, :, None, None]
        mixed = nn.functional.conv2d(x, self.kernel, padding=1)
        return TrunkFeatures(torch.tanh(mixed + offset) + 0.1 * offset * x, self.classes[label])


class WaveNetwork(SmallNetwork):
    """ε̂(x, t) = tanh(x) + ½ sin(x + t / 200): smooth in x and t, any shape."""

    def readout(self, features):
        x, time = features
        phase = time.view(-1, *(1,) * (x.ndim - 1)).to(x.dtype) / 200
        return x.tanh() + 0.5 * (x + phase).sin()


class Replay:
    """Noise given beforehand, in the order of use."""

    def __init__(self, normals: Sequence[torch.Tensor], probes: Sequence[torch.Tensor] = ()):
        self.normals, self.probes = iter(normals), iter(probes)

    def normal(self) -> torch.Tensor:
        return next(self.normals)

    def signs(self) -> torch.Tensor:
        return next(self.probes)
