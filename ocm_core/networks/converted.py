"""A network that was trained with other conventions, seen as one that follows this library's.

Those are data in [-1, 1], the time t = 1 … T, and a prediction of the noise. The conversion is
linear and exact, so the Jacobian follows by itself:

- v = √ᾱ ε - √b x_0 gives ε̂ = √ᾱ v̂ + √b x_t; a prediction of x_0 gives ε̂ = (x_t - √ᾱ x̂_0) / √b.
- Data in [-r, r] are data in [-1, 1] on the schedule ᾱ' = r²ᾱ / (r²ᾱ + b) (`Schedule.for_range`),
  with x_t = √(r²ᾱ + b) x'_t and the same ε̂.
"""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn

from ocm_core.diffusion.denoiser import Denoiser, TimeConvention
from ocm_core.diffusion.schedule import Schedule, predict_eps
from ocm_core.diffusion.score_network import ScoreNetwork, TrunkFeatures
from ocm_core.errors import OcmError
from ocm_core.networks._layers import table_at
from ocm_core.shapes import Batch, Labels, NetworkTimes

PredictionType = Literal["epsilon", "v_prediction", "sample"]
ToEps = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]  # of x_t, the output, ᾱ and b


def eps_of_v(x: Batch, v: Batch, alpha_bar: Tensor, b: Tensor) -> Batch:
    """ε̂ = √ᾱ_t v̂ + √b_t x_t."""
    return alpha_bar.sqrt() * v + b.sqrt() * x


TO_EPS: dict[str, ToEps] = {"v_prediction": eps_of_v, "sample": predict_eps}


class Converted(ScoreNetwork):
    """A network that takes t and predicts ε; `features` and `readout` are not converted."""

    alpha_bar: Tensor
    b: Tensor
    spread: Tensor

    def __init__(
        self,
        network: ScoreNetwork,
        schedule: Schedule,
        time: TimeConvention,
        prediction: PredictionType,
        data_range: float,
    ) -> None:
        """Take the schedule that the network was trained with."""
        super().__init__()
        if network.learns_variance and data_range != 1.0:
            raise OcmError(
                f"range = {data_range}: a learned variance lies between two that depend on the "
                "range; expected a network for data in [-1, 1], or one without"
            )
        self.network, self.time, self.data_range = network, time, data_range
        self.prediction = prediction
        self.head_kinds = network.head_kinds  # type: ignore[misc]
        self.out_channels_per_input = network.out_channels_per_input
        self.conditional, self.null_label = network.conditional, network.null_label
        self.label_dropout = network.label_dropout
        tables = {"alpha_bar": schedule.alpha_bar, "b": schedule.b}
        tables["spread"] = schedule.spread(data_range)
        for name, table in tables.items():
            self.register_buffer(name, torch.from_numpy(table), persistent=False)

    def features(self, x: Batch, time: NetworkTimes, label: Labels = None) -> TrunkFeatures:
        return self.network.features(self._entering(x, time), self.time(time), label)

    def readout(self, features: TrunkFeatures) -> Batch:
        return self.network.readout(features)

    def evaluate(
        self, x: Batch, time: NetworkTimes, label: Labels = None
    ) -> tuple[TrunkFeatures, Batch]:
        entering = self._entering(x, time)
        features, raw = self.network.evaluate(entering, self.time(time), label)
        raw = raw.to(x.dtype)
        if self.prediction == "epsilon":
            return features, raw
        predicted, *learned = raw.chunk(self.out_channels_per_input, dim=1)
        alpha_bar, b = self._at(self.alpha_bar, time, x), self._at(self.b, time, x)
        eps = TO_EPS[self.prediction](entering, predicted, alpha_bar, b)
        return features, torch.cat([eps, *learned], dim=1)

    def _entering(self, x: Batch, time: NetworkTimes) -> Batch:
        return x if self.data_range == 1.0 else self._at(self.spread, time, x).sqrt() * x

    @staticmethod
    def _at(table: Tensor, time: NetworkTimes, like: Batch) -> Tensor:
        """Return `table[t]`, shaped to multiply `like`."""
        return table_at(table, time).to(like.dtype).view(-1, *(1,) * (like.ndim - 1))

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
    converted = Converted(network, schedule, time, prediction, data_range)
    if (parameter := next(network.parameters(), None)) is not None:
        converted.to(parameter.device)
    return Denoiser(converted, schedule.for_range(data_range))
