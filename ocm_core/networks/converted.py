"""A network that was trained with other conventions, seen as one that follows this library's.

Those are data in [-1, 1], the time t = 1 … T, and a prediction of the noise. The conversion is
linear and exact, so the Jacobian follows by itself:

- v = √ᾱ ε - √b x_0 gives ε̂ = √ᾱ v̂ + √b x_t; a prediction of x_0 gives ε̂ = (x_t - √ᾱ x̂_0) / √b.
- Data in [-r, r] are data in [-1, 1] on the schedule ᾱ' = r²ᾱ / (r²ᾱ + b) (`Schedule.for_range`),
  with x_t = √(r²ᾱ + b) x'_t and the same ε̂.
- Flow matching: (1 - s) x_0 + s ε is x_t / (√ᾱ + √b), with s = √b / (√ᾱ + √b). Its velocity
  v = ε - x_0 gives ε̂ = (x_t + √ᾱ v̂) / (√ᾱ + √b). The network is told (T + 1) s.
- EDM: D = c_skip x + c_out F(c_in x; ln σ / 4) for x = x_0 + σ ε. With r = 1 / σ_data, c_in x
  is x_t and F is -v.
"""

from collections.abc import Callable
from math import log

import numpy as np
import torch
from torch import Tensor, nn

from ocm_core.diffusion.denoiser import Denoiser, TimeConvention
from ocm_core.diffusion.schedule import Schedule, predict_eps
from ocm_core.diffusion.score_network import ScoreNetwork, TrunkFeatures
from ocm_core.errors import OcmError
from ocm_core.networks._layers import table_at
from ocm_core.schema.experiment import PredictionType
from ocm_core.shapes import Batch, Labels, NetworkTimes

# of x_t, the output, ᾱ and b
TO_EPS: dict[str, Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]] = {
    "epsilon": lambda x, eps, a, b: eps,
    "v_prediction": lambda x, v, a, b: a.sqrt() * v + b.sqrt() * x,
    "sample": predict_eps,
    "flow_prediction": lambda x, v, a, b: (x + a.sqrt() * v) / (a.sqrt() + b.sqrt()),
    "edm": lambda x, f, a, b: a.sqrt() * -f + b.sqrt() * x,
}


class Conversion(nn.Module):
    """What goes into a network that was trained otherwise, and what comes out, as tables over t."""

    alpha_bar: Tensor
    b: Tensor
    spread: Tensor
    told: Tensor

    def __init__(
        self,
        schedule: Schedule,
        time: TimeConvention,
        prediction: PredictionType,
        data_range: float = 1.0,
    ) -> None:
        """Take the schedule that the network was trained with."""
        super().__init__()
        self.time, self.prediction, self.data_range = time, prediction, data_range
        self.is_flow = prediction == "flow_prediction"
        alpha_bar, b, told = schedule.alpha_bar, schedule.b, schedule.b
        if self.is_flow:
            told = len(b) * np.sqrt(b) / (np.sqrt(alpha_bar) + np.sqrt(b))
        elif prediction == "edm":
            told = np.append(0.0, 0.125 * np.log(b[1:] / alpha_bar[1:]) - 0.25 * log(data_range))
        spread = schedule.spread(data_range)
        tables = {"alpha_bar": alpha_bar, "b": b, "spread": spread, "told": told}
        for name, table in tables.items():
            self.register_buffer(name, torch.from_numpy(table), persistent=False)

    @property
    def told_levels(self) -> bool:
        """Tell whether the network is told a number of the noise level, not t."""
        return self.is_flow or self.prediction == "edm"

    def network_time(self, time: NetworkTimes) -> NetworkTimes:
        """Return the numbers that the network is told for t: of its noise level, or of t itself."""
        if self.told_levels:
            return table_at(self.told, time).to(torch.float32)
        return self.time(time)

    def scaled(self, x: Batch, time: NetworkTimes) -> Batch:
        """Return x_t of the network's own range and schedule."""
        return x if self.data_range == 1.0 else self._at(self.spread, time, x).sqrt() * x

    def on_path(self, x: Batch, time: NetworkTimes) -> Batch:
        """Return x_t on the path of a flow: (1 - s) x_0 + s ε."""
        return x / self._path(time, x) if self.is_flow else x

    def off_path(self, x: Batch, time: NetworkTimes) -> Batch:
        """Invert `on_path`."""
        return x * self._path(time, x) if self.is_flow else x

    def eps(self, scaled: Batch, output: Batch, time: NetworkTimes) -> Batch:
        """Return ε̂, from what `scaled` returned and the network's output."""
        at = self._at(self.alpha_bar, time, scaled), self._at(self.b, time, scaled)
        return TO_EPS[self.prediction](scaled, output, *at)

    def output(self, scaled: Batch, eps: Batch, time: NetworkTimes) -> Batch:
        """Return the output that `eps` takes for this ε̂."""
        zero = torch.zeros_like(scaled)
        return (eps - self.eps(scaled, zero, time)) / self.unit(time, scaled)

    def unit(self, time: NetworkTimes, like: Batch) -> Batch:
        """Return ∂ε̂ / ∂output, shaped to multiply `like`."""
        at = self._at(self.alpha_bar, time, like), self._at(self.b, time, like)
        return TO_EPS[self.prediction](torch.zeros_like(at[0]), torch.ones_like(at[0]), *at)

    def _path(self, time: NetworkTimes, like: Batch) -> Tensor:
        """√ᾱ_t + √b_t."""
        alpha_bar, b = self._at(self.alpha_bar, time, like), self._at(self.b, time, like)
        return alpha_bar.sqrt() + b.sqrt()

    @staticmethod
    def _at(table: Tensor, time: NetworkTimes, like: Batch) -> Tensor:
        """Return `table[t]`, shaped to multiply `like`."""
        return table_at(table, time).to(like.dtype).view(-1, *(1,) * (like.ndim - 1))


class Converted(ScoreNetwork):
    """A network that takes t and predicts ε; `features` and `readout` are not converted."""

    def __init__(self, network: ScoreNetwork, conversion: Conversion) -> None:
        super().__init__()
        if network.learns_variance and (data_range := conversion.data_range) != 1.0:
            raise OcmError(
                f"range = {data_range}: a learned variance lies between two that depend on the "
                "range; expected a network for data in [-1, 1], or one without"
            )
        self.network, self.conversion = network, conversion
        self.head_kinds = network.head_kinds  # type: ignore[misc]
        self.out_channels_per_input = network.out_channels_per_input
        self.conditional, self.null_label = network.conditional, network.null_label
        self.label_dropout = network.label_dropout

    def features(self, x: Batch, time: NetworkTimes, label: Labels = None) -> TrunkFeatures:
        entering = self.conversion.on_path(self.conversion.scaled(x, time), time)
        return self.network.features(entering, self.conversion.network_time(time), label)

    def readout(self, features: TrunkFeatures) -> Batch:
        return self.network.readout(features)

    def evaluate(
        self, x: Batch, time: NetworkTimes, label: Labels = None
    ) -> tuple[TrunkFeatures, Batch]:
        scaled = self.conversion.scaled(x, time)
        entering, told = self.conversion.on_path(scaled, time), self.conversion.network_time(time)
        features, raw = self.network.evaluate(entering, told, label)
        raw = raw.to(x.dtype)
        if self.conversion.prediction == "epsilon":
            return features, raw
        predicted, *learned = raw.chunk(self.out_channels_per_input, dim=1)
        return features, torch.cat([self.conversion.eps(scaled, predicted, time), *learned], dim=1)

    def loss_unit(self, time: NetworkTimes, like: Batch) -> Tensor | float:
        """∂ε̂ / ∂output for flow matching and EDM: their losses are those of the output."""
        return self.conversion.unit(time, like) if self.conversion.told_levels else 1.0

    def _build_head(self, kind: str, **sizes: int) -> nn.Module:
        return self.network.make_head(kind, **sizes)


def unconverted(network: ScoreNetwork) -> ScoreNetwork:
    """Return the network with its own conventions."""
    return network.network if isinstance(network, Converted) else network


def denoiser_of(
    network: ScoreNetwork,
    schedule: Schedule,
    time: TimeConvention,
    prediction: PredictionType = "epsilon",
    data_range: float = 1.0,
) -> Denoiser:
    """Wrap a network trained with `schedule` as an ε-predictor on data in [-1, 1]."""
    if prediction == "epsilon" and data_range == 1.0:
        return Denoiser(network, schedule, time)
    conversion = Conversion(schedule, time, prediction, data_range)
    if (parameter := next(network.parameters(), None)) is not None:
        conversion.to(parameter.device)
    return Denoiser(Converted(network, conversion), schedule.for_range(data_range))
