"""Any diffusers `UNet2DModel` with timesteps, as a score network that takes heads.

The model's own forward pass is run, not written again: the trunk is a shallow copy of it whose
output layers pass everything on, and those layers are the readout. Parameters are shared with the
model that was given, which stays as it was. Its attention processors are the user's choice.
"""

from collections.abc import Iterator, Mapping
from copy import copy
from typing import Any, ClassVar, cast

from diffusers.models.resnet import ResnetBlock2D
from diffusers.models.unets.unet_2d import UNet2DModel
from torch import Tensor, nn

from ocm_core.diffusion.score_network import ScoreNetwork, TrunkFeatures
from ocm_core.errors import OcmError
from ocm_core.networks._layers import zeroed
from ocm_core.networks._unet import OutputLayer
from ocm_core.networks.config import refuse_sizes
from ocm_core.shapes import Images, Labels, NetworkTimes

OUTPUT_LAYERS = ("conv_norm_out", "conv_act", "conv_out")


class DiffusersUNet(ScoreNetwork):
    """A UNet of diffusers, cut before its output layers."""

    head_kinds = ("simple", "complex")
    model_kind: ClassVar[Any] = UNet2DModel

    def __init__(self, model: Any) -> None:
        super().__init__()
        kind = self.model_kind.__name__
        if not isinstance(model, self.model_kind):
            raise OcmError(
                f"{type(model).__name__} is no diffusers {kind}; for other networks write a"
                " subclass of ScoreNetwork (ocm_core/diffusion/score_network.py)"
            )
        if obstacles := list(self._obstacles(model)):
            raise OcmError(f"this {kind} cannot be used: " + "; ".join(obstacles))
        self.config: Mapping[str, Any] = model.config
        self.out_channels_per_input = self.config["out_channels"] // self.config["in_channels"]
        self.classes: int | None = self.config["num_class_embeds"]
        self.conditional = self.classes is not None
        self.trunk = _without_output(model)
        self.output = OutputLayer(model.conv_norm_out, model.conv_out)
        self.published_names = {f"trunk.{name}": name for name, _ in model.named_children()} | {
            "output.norm": "conv_norm_out",
            "output.conv": "conv_out",
        }

    def features(self, x: Images, time: NetworkTimes, label: Labels = None) -> TrunkFeatures:
        self._check_input(x, label)
        if self.config["time_embedding_type"] == "learned":
            time = time.long()  # a table over the timesteps
        (hidden,) = self.trunk(x, time, label, return_dict=False)
        # heads read these detached, and on a CPU group norm's backward pass crashes the process
        # for an input in channels-last order that needs no gradient (seen in torch 2.13)
        return TrunkFeatures(hidden.contiguous(), self.embedding(time, label))

    def readout(self, features: TrunkFeatures) -> Images:
        image: Tensor = self.output(features)
        return image

    def embedding(self, time: NetworkTimes, label: Labels) -> Tensor:
        """Return the embedding that the trunk gives to its blocks and does not return."""
        encoded = self.trunk.time_proj(time).to(self.trunk.dtype)
        embedding: Tensor = self.trunk.time_embedding(encoded)
        return embedding if label is None else embedding + self.trunk.class_embedding(label)

    def _check_input(self, x: Images, label: Labels) -> None:
        if self.classes is None and label is not None:
            raise OcmError("this UNet2DModel has no classes (num_class_embeds); pass no label")
        if self.classes is not None and not _within(label, self.classes):
            raise OcmError(
                f"this UNet2DModel has the classes 0 to {self.classes - 1} (num_class_embeds) and"
                " none for 'no label'; pass a label of these for every image"
            )
        self._check_shape(x)

    def _check_shape(self, x: Images) -> None:
        channels = self.config["in_channels"]
        factor = 2 ** (len(self.config["block_out_channels"]) - 1)
        if x.shape[1] != channels or x.shape[-2] % factor or x.shape[-1] % factor:
            raise OcmError(
                f"images of shape {tuple(x.shape[1:])}: this {self.model_kind.__name__} takes"
                f" {channels} channels and sides that are multiples of {factor}"
            )

    def _build_head(self, kind: str, **sizes: int) -> OutputLayer:
        refuse_sizes(kind, sizes)
        norm = cast(nn.GroupNorm, self.output.norm)
        residual = self._residual(norm) if kind == "complex" else None
        conv = zeroed(nn.Conv2d(norm.num_channels, self.config["in_channels"], 3, padding=1))
        return OutputLayer(
            nn.GroupNorm(norm.num_groups, norm.num_channels, norm.eps), conv, residual
        )

    def _residual(self, norm: nn.GroupNorm) -> ResnetBlock2D:
        """Make one more block like those of the model; it begins by passing its input on."""
        block = ResnetBlock2D(
            in_channels=norm.num_channels,
            temb_channels=self.trunk.time_embedding.linear_2.out_features,
            groups=norm.num_groups,
            eps=norm.eps,
            dropout=self.config["dropout"],
            non_linearity=self.config["act_fn"],
            time_embedding_norm=self.config["resnet_time_scale_shift"],
        )
        zeroed(block.conv2)
        return block

    def _obstacles(self, model: Any) -> Iterator[str]:
        config: Mapping[str, Any] = model.config
        inputs, outputs = config["in_channels"], config["out_channels"]
        if outputs not in (inputs, 2 * inputs):
            yield (
                f"out_channels={outputs}; expected in_channels={inputs}, or {2 * inputs} with a"
                " learned variance"
            )
        if config["time_embedding_type"] == "fourier":
            yield "time_embedding_type='fourier': its time is a noise level; expected timesteps"
        if (kind := config["class_embed_type"]) is not None:
            yield f"class_embed_type={kind!r}; expected None (and num_class_embeds for classes)"
        if (shift := config["resnet_time_scale_shift"]) not in ("default", "scale_shift"):
            yield f"resnet_time_scale_shift={shift!r}; expected 'default' or 'scale_shift'"
        if any(hasattr(block, "skip_conv") for block in model.up_blocks):
            yield "up_block_types: skip blocks add to the image after the last layer"


def _within(label: Labels, classes: int) -> bool:
    """Return whether all labels are classes; on a GPU, where looking would wait, assume so."""
    if label is None or not label.is_cpu:
        return label is not None
    return 0 <= int(label.min()) <= int(label.max()) < classes


def _without_output(model: Any) -> Any:
    trunk = copy(model)
    trunk._modules = model._modules | {name: nn.Identity() for name in OUTPUT_LAYERS}
    return trunk


def adapt(model: UNet2DModel) -> DiffusersUNet:
    """Wrap the model; its parameters are shared."""
    return DiffusersUNet(model)
