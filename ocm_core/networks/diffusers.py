"""Models that diffusers has classes for: each class has a small file of its own that adapts it."""

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any, ClassVar, cast

from jaxtyping import Float32, Int
from torch import Tensor, nn

from ocm_core.diffusion.score_network import ScoreNetwork
from ocm_core.errors import OcmError, unknown
from ocm_core.io.reading import reading
from ocm_core.networks._layers import CutNetwork
from ocm_core.schema.experiment import DIFFUSERS_ADAPTERS

PromptEmbeddings = Float32[Tensor, "prompt token width"]
PromptLabels = Int[Tensor, " batch"]


class Prompts(nn.Module):
    """Embeddings that labels are rows of, not weights; the last, of no text, is no label."""

    embeddings: Tensor

    def __init__(self, embeddings: PromptEmbeddings) -> None:
        super().__init__()
        self.register_buffer("embeddings", embeddings, persistent=False)

    def forward(self, label: PromptLabels) -> PromptEmbeddings:
        return self.embeddings[label]


class DiffusersNetwork(CutNetwork):
    """A model of diffusers, cut before its last layers; its parameters are shared.

    A subclass names the class of diffusers (`model_kind`), finds what it cannot use (`obstacles`),
    and says how features, output and heads are got. Its file names the subclass as `ADAPTER`.
    """

    model_kind: ClassVar[Any]

    def __init__(self, model: Any) -> None:
        super().__init__()
        if obstacles := list(self.obstacles(model)):
            raise OcmError(f"this {type(model).__name__} cannot be used: {'; '.join(obstacles)}")
        self.config: Mapping[str, Any] = model.config
        self.in_channels: int = self.config["in_channels"]
        outputs = self.config["out_channels"] or self.in_channels
        self.out_channels_per_input = outputs // self.in_channels

    def obstacles(self, model: Any) -> Iterator[str]:
        """Yield what is wrong with the configuration, and what is expected."""
        inputs, outputs = model.config["in_channels"], model.config["out_channels"]
        if outputs not in (None, inputs, 2 * inputs):
            allowed = f"in_channels={inputs}, or {2 * inputs} with a learned variance"
            yield f"out_channels={outputs}; expected {allowed}"


def build(config: Mapping[str, Any], null_class: int | None = None) -> ScoreNetwork:
    """Build a score network of the configuration's class, with random weights."""
    return wrapped(new_model(config), null_class)


def new_model(config: Mapping[str, Any]) -> nn.Module:
    """Build a model of the configuration's class, with random weights."""
    kind = str(config.get("_class_name"))
    remedy = "compare it with diffusers' documentation"
    with reading("config.json", f"a configuration of {kind}", remedy):
        return cast(nn.Module, _adapter(kind).model_kind.from_config(dict(config)))


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
