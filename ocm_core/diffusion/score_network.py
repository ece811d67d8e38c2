"""The interface of a score network: features, a readout, and heads.

A network is split where a covariance head is attached: `features` runs the trunk, `readout` turns
its last hidden state into ε̂, and heads read the same features. One pass serves them all.
"""

from abc import ABC, abstractmethod
from typing import ClassVar, NamedTuple

from torch import Tensor, nn

from ocm_core.errors import OcmError, unknown
from ocm_core.shapes import Images, Labels, NetworkTimes


class TrunkFeatures(NamedTuple):
    """The features that a covariance head reads."""

    hidden: Tensor  # the map (or tokens) that the output layer reads
    embedding: Tensor  # the time (and class) embedding that conditions the blocks


def last_layer(net: nn.Module) -> tuple[str, nn.Linear | nn.Conv2d]:
    """Return the last layer of a head, which is linear, and its name."""
    layers = [(k, m) for k, m in net.named_modules() if isinstance(m, nn.Linear | nn.Conv2d)]
    return layers[-1]


class ScoreNetwork(nn.Module, ABC):
    """A network that predicts the noise, in a trunk and a readout."""

    head_kinds: ClassVar[tuple[str, ...]]
    out_channels_per_input: int  # 1: the noise; 2: the noise, then the interpolation value
    conditional: bool = False  # whether it takes class labels
    null_label: int | None = None  # the class that stands for "no label", where there is one
    label_dropout: float = 0.0  # how often training replaces a label by the null class

    @property
    def learns_variance(self) -> bool:
        """Tell whether the network also predicts a variance."""
        return self.out_channels_per_input == 2

    @abstractmethod
    def features(self, x: Images, time: NetworkTimes, label: Labels = None) -> TrunkFeatures:
        """Run the trunk."""

    @abstractmethod
    def readout(self, features: TrunkFeatures) -> Images:
        """Return the network's output, given the trunk's features."""

    def evaluate(
        self, x: Images, time: NetworkTimes, label: Labels = None
    ) -> tuple[TrunkFeatures, Images]:
        """Return the trunk's features and the network's output, from one pass."""
        features = self.features(x, time, label)
        return features, self.readout(features)

    def forward(self, x: Images, time: NetworkTimes, label: Labels = None) -> Images:
        return self.evaluate(x, time, label)[1]

    def loss_unit(self, time: NetworkTimes, like: Images) -> Tensor | float:
        """Return the unit in which training measures the error of ε̂, shaped to multiply `like`."""
        return 1.0

    def make_head(self, kind: str, **sizes: int) -> nn.Module:
        """Return a head for these features; `sizes` are those that its kind leaves open."""
        if kind not in self.head_kinds:
            raise OcmError(f"head kind of {type(self).__name__}: {unknown(kind, self.head_kinds)}")
        return self._build_head(kind, **sizes)

    @abstractmethod
    def _build_head(self, kind: str, **sizes: int) -> nn.Module: ...
