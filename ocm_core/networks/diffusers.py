"""Models that diffusers has classes for: each class has a small file of its own that adapts it."""

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from copy import copy
from importlib import import_module
from typing import Any, cast

from jaxtyping import Int
from torch import Tensor, nn

from ocm_core.diffusion.score_network import ScoreNetwork, TrunkFeatures
from ocm_core.errors import OcmError, unknown
from ocm_core.io.reading import reading
from ocm_core.networks._layers import CutNetwork
from ocm_core.schema.experiment import DIFFUSERS_ADAPTERS, WITHOUT_TEXT
from ocm_core.shapes import Images, Labels, NetworkTimes

PromptArrays = dict[str, Tensor]  # of several prompts, by the argument of the model that takes them
PromptLabels = Int[Tensor, " batch"]


class Prompts(nn.Module):
    """Arrays that labels are rows of, not weights; the last row, of no text, is no label."""

    def __init__(self, arrays: PromptArrays) -> None:
        super().__init__()
        for name, array in arrays.items():
            self.register_buffer(name, array, persistent=False)

    def forward(self, label: PromptLabels) -> PromptArrays:
        return {name: array[label] for name, array in self.named_buffers()}


class DiffusersNetwork(CutNetwork):
    """A model of diffusers, cut before its last layers; its parameters are shared.

    The trunk is a shallow copy of the model with other last layers: the model that was given stays
    as it was. A subclass finds what it cannot use (`obstacles`), and says how the model is called,
    and how features, output and heads are got. Its file names it as `ADAPTER`.
    """

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.kind = type(model).__name__
        self.takes_text = self.kind not in WITHOUT_TEXT
        self.label_dropout = 0.1 if self.takes_text else 0.0  # as such models were trained
        self.prompts: nn.Module | None = None  # which labels of a model that takes text are rows of
        if obstacles := list(self.obstacles(model)):
            raise OcmError(f"this {self.kind} cannot be used: {'; '.join(obstacles)}")
        self.config: Mapping[str, Any] = model.config
        self.trunk: Any = copy(model)
        self.published_names = {f"trunk.{name}": name for name, _ in model.named_children()}
        self.in_channels: int = self.config["in_channels"]
        outputs = self.config["out_channels"] or self.in_channels
        self.out_channels_per_input = outputs // self.in_channels

    def obstacles(self, model: Any) -> Iterator[str]:
        """Yield what is wrong with the configuration, and what is expected."""
        inputs, outputs = model.config["in_channels"], model.config["out_channels"]
        if outputs not in (None, inputs, 2 * inputs):
            allowed = f"in_channels={inputs}, or {2 * inputs} with a learned variance"
            yield f"out_channels={outputs}; expected {allowed}"

    @abstractmethod
    def arguments(self, x: Images, time: NetworkTimes, label: Labels) -> dict[str, Any]:
        """Return what the model's own forward pass is given."""

    def features_of(self, last: tuple[Tensor, ...], given: Mapping[str, Any]) -> TrunkFeatures:
        """Return the features, from what the last norm and the model itself are given."""
        return TrunkFeatures(*last[:2])  # an adaptive norm is given the embedding, too

    def unpacked(self, output: Tensor) -> Images:
        """Return the output of the model's own forward pass as an image."""
        return output

    def texts(self, x: Images, label: Labels) -> PromptArrays:
        """Return the arrays of the prompts, or of the empty one."""
        if self.prompts is None or self.null_label is None:
            raise OcmError(
                f"this {self.kind} takes text, and has been given no prompts; say which:"
                " api.load(folder, prompts=[…]), or an experiment with captions"
            )
        dtype, arrays = next(self.parameters()).dtype, self.prompts(self.labels(x, label))
        return {name: array.to(dtype) for name, array in arrays.items()}


def build(config: Mapping[str, Any], null_class: int | None = None) -> ScoreNetwork:
    """Build a score network of the configuration's class, with random weights."""
    return wrapped(new_model(config), null_class)


def new_model(config: Mapping[str, Any]) -> nn.Module:
    """Build a model of the configuration's class, with random weights."""
    import diffusers

    kind = str(config.get("_class_name"))
    _adapter(kind)  # refuses what is none of its models
    remedy = "compare it with diffusers' documentation"
    with reading("config.json", f"a configuration of {kind}", remedy):
        return cast(nn.Module, getattr(diffusers, kind).from_config(dict(config)))


def wrapped(model: nn.Module, null_class: int | None = None) -> ScoreNetwork:
    """Wrap the model as a score network; its parameters are shared."""
    network = _adapter(type(model).__name__)(model)
    if null_class is not None and not network.conditional:
        raise OcmError(f"null_class = {null_class}: the model takes no classes; leave it out")
    if null_class is not None:
        network.null_label = null_class
    return network


def _adapter(kind: str) -> type[DiffusersNetwork]:
    if kind not in DIFFUSERS_ADAPTERS:
        raise OcmError(
            f"class of diffusers: {unknown(kind, DIFFUSERS_ADAPTERS)}; for other networks write a"
            " subclass of ScoreNetwork (ocm_core/diffusion/score_network.py)"
        )
    adapter = import_module(f"ocm_core.networks.{DIFFUSERS_ADAPTERS[kind]}").ADAPTER
    return cast(type[DiffusersNetwork], adapter)


NETWORK = build
